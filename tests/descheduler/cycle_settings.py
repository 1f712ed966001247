"""The settings with which the tests run cycles: what comes is waited for, what never comes is soon given up.

And what became of the moves of one.
"""

from dataclasses import replace

from berth_core.clock import SystemClock
from berth_core.migration_plans import MoveMethod
from berth_descheduler.outcome import Outcome
from berth_descheduler.planner import WaveLimits
from berth_descheduler.planner.settings import Thresholds
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from berth_descheduler.settings import CycleSettings, ExecutionSettings, MoveTimeouts
from planner_settings import planner_settings, with_args

PATIENT = MoveTimeouts(
    reserve_seconds=30,
    evict_seconds=30,
    land_seconds=30,
    ready_seconds=30,
    heeds_progress_deadlines=False,
    end_seconds=0.3,
    gap_seconds=10,
    shutdown_seconds=0.3,
)
"""The cluster in memory answers at once; these are for a machine that is busy with something else."""

SETTINGS = CycleSettings(
    execution=ExecutionSettings(timeouts=PATIENT, tick_seconds=0.02, status_interval_seconds=0),
    identity="test",
    lease_wait_seconds=0.3,
    approval_seconds=0.5,
    moves=MoveMethod.EVICT,
)
PLANNER = planner_settings(args=DefragmentationArgs(whole_nodes=True), waves=WaveLimits(per_controller=5))
SINGLE_PODS = with_args(PLANNER, whole_nodes=False)


_LONGEST_SLEEP_SECONDS = 0.005


class BriskClock(SystemClock):
    """The machine's clock for a cluster that has nothing to wait for: pauses between two looks are short."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, _LONGEST_SLEEP_SECONDS))


def impatient(*waits: str, settings: CycleSettings = SETTINGS, seconds: float = 1.0) -> CycleSettings:
    """Return settings with which some waits, fields of `MoveTimeouts`, are soon over, for a case where they have to."""
    timeouts = replace(settings.execution.timeouts, **dict.fromkeys(waits, seconds))
    return replace(settings, execution=replace(settings.execution, timeouts=timeouts))


UNPROTECTED = planner_settings(
    args=DefragmentationArgs(protection=Thresholds.of(cpu=100)), waves=WaveLimits(per_controller=5)
)
"""What lets a plan fill its targets."""


def states(outcome: Outcome) -> dict[str, tuple[str, str]]:
    """Return what became of each move, with the reason, by pod."""
    assert outcome.plan is not None
    return {status.pod: (status.state.value, status.reason) for status in outcome.plan.statuses}
