"""The strategy of plans that move only the pods that deschedule plugins name."""

from berth_core import Pod, Snapshot
from berth_descheduler.planner import NodeIndex, Problem, Proposal, State


class NoopStrategy:
    """Proposes no moves, and no reasons for that."""

    def possible_sources(self, _problem: Problem) -> tuple[NodeIndex, ...]:
        return ()

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        return ()

    def propose(self, _problem: Problem, _state: State) -> Proposal:
        return Proposal((), ())
