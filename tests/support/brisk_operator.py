"""Runs the operator with as little time for a hand-over as an environment variable says, so that tests stay short.

It changes nothing else: the setting is given where the program makes its settings, and the program's own `main` is run.
"""

import os
from functools import partial

from berth_operator import cli
from berth_operator.settings import HandoverSettings

if __name__ == "__main__":
    seconds = float(os.environ["HANDOVER_SECONDS"])
    cli.HandoverSettings = partial(HandoverSettings, timeout_seconds=seconds)  # type: ignore[misc,assignment]
    cli.main()
