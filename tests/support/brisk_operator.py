"""Runs the operator with as little time as environment variables say, so that tests stay short.

HANDOVER_SECONDS is the time of a hand-over. LIST_SECONDS lies between two lists of what has no watch, and between two
counts of the pods that are left on lent nodes. It changes nothing else, and the program's own `main` is run.
"""

import os
from functools import partial

from berth_operator import cli
from berth_operator.executor import garbage_collector, queues, zones
from berth_operator.settings import HandoverSettings

INTERVALS = (
    (garbage_collector, "_LIST_SECONDS"),
    (queues, "_LIST_SECONDS"),
    (queues, "_KUEUE_SECONDS"),
    (zones, "_LET_IN_SECONDS"),
    (zones, "_COUNT_SECONDS"),
)

if __name__ == "__main__":
    if "HANDOVER_SECONDS" in os.environ:
        seconds = float(os.environ["HANDOVER_SECONDS"])
        cli.HandoverSettings = partial(HandoverSettings, timeout_seconds=seconds)  # type: ignore[misc,assignment]
    if "LIST_SECONDS" in os.environ:
        for module, interval in INTERVALS:
            assert hasattr(module, interval)
            setattr(module, interval, float(os.environ["LIST_SECONDS"]))
    cli.main()
