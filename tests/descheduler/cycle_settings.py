"""Owns the settings with which the tests run cycles: every wait is short, as the cluster in memory answers at once."""

from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.settings import CycleSettings, ExecutionSettings, MoveTimeouts

QUICK = MoveTimeouts(
    reserve_seconds=0.5,
    evict_seconds=0.5,
    land_seconds=0.5,
    ready_seconds=0.5,
    gap_seconds=0.3,
    shutdown_seconds=0.3,
)
SETTINGS = CycleSettings(
    execution=ExecutionSettings(timeouts=QUICK, tick_seconds=0.02, status_interval_seconds=0),
    identity="test",
    lease_wait_seconds=0.3,
    approval_seconds=0.5,
)
PLANNER = PlannerSettings(waves=WaveLimits(per_controller=5))
