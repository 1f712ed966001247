"""Runs the operator with its clock set forward or back by what a file says: the file's seconds are added at each look.

It changes nothing else: the clock is patched where the program takes it, and the program's own `main` is run.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path

from berth_core.clock import SystemClock
from berth_operator.cli import main

_true_time = SystemClock.now


def _shifted(self: SystemClock) -> datetime:
    shift_seconds = float(Path(os.environ["SHIFT_FILE"]).read_text(encoding="ascii") or 0)
    return _true_time(self) + timedelta(seconds=shift_seconds)


if __name__ == "__main__":
    SystemClock.now = _shifted  # type: ignore[method-assign]
    main()
