"""What is called as a cycle goes on: observers, alone or several joined."""

from collections.abc import Sequence

from berth_core import MoveStatus
from berth_descheduler.outcome import Outcome, Phase
from berth_descheduler.planner import Plan


class CycleObserver:
    """Receives the progress of a cycle, in the cycle's own thread, and ignores it; no method may raise."""

    def phase_begun(self, phase: Phase) -> None:
        """A phase begins."""

    def phase_ended(self, phase: Phase, seconds: float) -> None:
        """A phase is over."""

    def planned(self, plan: Plan) -> None:
        """The planner found a plan."""

    def plan_published(self, name: str, *, approved: bool) -> None:
        """The plan is in the cluster; unless approved, it waits for a person."""

    def plan_begun(self, name: str, moves: int, uid: str) -> None:
        """The execution of the plan begins."""

    def replacements_untried(self, reason: str) -> None:
        """Replacements are not tried by dry run before evictions; called once per plan, from any thread."""

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        """Nodes that an earlier plan emptied have become free."""

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:
        """The current statuses of all moves while `wave` is under way; called at every step, changed or not."""

    def cut_off(self, why: str) -> None:
        """The cycle was cut off; the command tries to go on with its plan."""

    def cycle_ended(self, outcome: Outcome) -> None:
        """The cycle is over."""


class _JoinedObservers(CycleObserver):
    """Passes all calls on to several observers, in their order."""

    def __init__(self, observers: Sequence[CycleObserver]) -> None:
        self._observers = observers

    def phase_begun(self, phase: Phase) -> None:
        for observer in self._observers:
            observer.phase_begun(phase)

    def phase_ended(self, phase: Phase, seconds: float) -> None:
        for observer in self._observers:
            observer.phase_ended(phase, seconds)

    def planned(self, plan: Plan) -> None:
        for observer in self._observers:
            observer.planned(plan)

    def plan_published(self, name: str, *, approved: bool) -> None:
        for observer in self._observers:
            observer.plan_published(name, approved=approved)

    def plan_begun(self, name: str, moves: int, uid: str) -> None:
        for observer in self._observers:
            observer.plan_begun(name, moves, uid)

    def replacements_untried(self, reason: str) -> None:
        for observer in self._observers:
            observer.replacements_untried(reason)

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        for observer in self._observers:
            observer.nodes_freed(nodes)

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:
        for observer in self._observers:
            observer.moves_changed(statuses, wave)

    def cut_off(self, why: str) -> None:
        for observer in self._observers:
            observer.cut_off(why)

    def cycle_ended(self, outcome: Outcome) -> None:
        for observer in self._observers:
            observer.cycle_ended(outcome)


def join_observers(first: CycleObserver, others: Sequence[CycleObserver]) -> CycleObserver:
    """Return one observer that passes all calls on, the first itself where there are no others."""
    return _JoinedObservers((first, *others)) if others else first
