"""`Threshold` plans without numpy, which takes a while to import and which only the other strategies need."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["numpy"] = None
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import plan
from berth_descheduler.plugins.registry import default_settings
assert plan(Snapshot.empty(), default_settings()).moves == ()
"""


def test_threshold_needs_no_numpy() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stderr) == (0, "")
