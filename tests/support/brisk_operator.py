"""Runs the operator with the times that environment variables say.

HANDOVER_SECONDS is the time of a hand-over. LIST_SECONDS lies between two lists of what has no watch, and between two
counts of the pods that are left on lent nodes. REQUEST_SECONDS is how long a call is waited for: longer than usual
where a test holds one. It changes nothing else, and the program's own `main` is run.
"""

import os
from functools import partial

from berth_operator import cli
from berth_operator.capabilities.queues import act as queues
from berth_operator.capabilities.zones import act as zones
from berth_operator.capabilities.zones import preemptable_pods
from berth_operator.runtime import capability
from berth_operator.settings import HandoverSettings

INTERVALS = (
    (capability, "_LIST_SECONDS"),
    (queues, "_KUEUE_SECONDS"),
    (preemptable_pods, "_LET_IN_SECONDS"),
    (zones, "_COUNT_SECONDS"),
)

if __name__ == "__main__":
    if "HANDOVER_SECONDS" in os.environ:
        seconds = float(os.environ["HANDOVER_SECONDS"])
        cli.HandoverSettings = partial(HandoverSettings, timeout_seconds=seconds)  # type: ignore[misc,assignment]
    if "REQUEST_SECONDS" in os.environ:
        assert hasattr(cli, "_REQUEST_SECONDS")
        cli._REQUEST_SECONDS = float(os.environ["REQUEST_SECONDS"])  # type: ignore[misc]
    if "LIST_SECONDS" in os.environ:
        for module, interval in INTERVALS:
            assert hasattr(module, interval)
            setattr(module, interval, float(os.environ["LIST_SECONDS"]))
    cli.main()
