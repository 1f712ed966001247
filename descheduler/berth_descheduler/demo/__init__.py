"""The demo runs the whole chain on a cluster made for it.

Nothing in production uses it.
"""

from berth_descheduler.demo.real_nodes import RealDemoResult, run_real_demo
from berth_descheduler.demo.scenario import (
    PLANNER_SETTINGS,
    ConsoleNarrator,
    DemoResult,
    DemoRun,
    log_files,
    run_demo,
)
from berth_descheduler.demo.scenes import SCENES, SceneResult, play_scene

__all__ = [
    "PLANNER_SETTINGS",
    "SCENES",
    "ConsoleNarrator",
    "DemoResult",
    "DemoRun",
    "RealDemoResult",
    "SceneResult",
    "log_files",
    "play_scene",
    "run_demo",
    "run_real_demo",
]
