"""The plugin of `berth drain`: every pod leaves some nodes, and goes to one of the others.

It is for commands and not for policies. DaemonSet and mirror pods belong to their nodes, and pods that have ended or
are being deleted go by themselves: none of them is named.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from berth_core import (
    Deadline,
    InputError,
    Node,
    Objective,
    PlannedMove,
    Pod,
    ResourceAmounts,
    RunMode,
    Snapshot,
    agreeing,
    count,
    first_few,
    readable_requests,
    refuse_unknown,
)
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.framework.refusals import may_pass
from berth_descheduler.goals.move_pods.goal import MovePodsGoal
from berth_descheduler.outcome import NotBegun, Verdict, names_of
from berth_descheduler.planner import Plan, Strategy
from berth_descheduler.planner.owners.owners_of_owners import read_owner_kinds
from berth_descheduler.planner.sentences import count_moves
from berth_descheduler.settings import MOST_IN_A_WAVE, CycleSettings, FreedNodes

NODE_DRAIN: Final = "NodeDrain"
"""The name by which plans record that they drain nodes."""

DRAINED_AT_ONCE: Final = 200
"""How many moves of a drain begin together by default."""

_STAYING_SHOWN: Final = 20
_NODES: Final = "nodes"
_EMPTY_DIRS: Final = "deleteEmptyDirData"
_SKIP_REFUSED: Final = "skipRefused"
_HARMLESS_OWNERS: Final = "harmlessOwners"


class DrainNodesGoal(MovePodsGoal):
    """Moves the pods off nodes that are drained."""

    untied_pods_await_waves: ClassVar[bool] = False

    def sentence(self, plan: Plan) -> str:
        nodes = NodeDrain.parse(plan.objective.args).nodes
        staying_pods = len(plan.pods_staying_on(nodes))
        staying_text = f" {count(staying_pods, 'pod')} cannot go." if staying_pods else ""
        if not plan.moves:
            return f"Nothing to move off {count(len(nodes), 'node')}.{staying_text}"
        drain = agreeing(len(plan.moves), "drain")
        return f"{count_moves(plan)} {drain} {count(len(nodes), 'node')}.{staying_text}"


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """Names the pods that leave the nodes, the largest first, and moves no others."""

    goal: ClassVar[MovePodsGoal] = DrainNodesGoal()

    moves_at_once: ClassVar[int] = DRAINED_AT_ONCE

    nodes: frozenset[str] = frozenset()

    delete_empty_dirs: bool = False
    """Whether pods leave that lose the data of their `emptyDir` volumes."""

    skip_refused: bool = False
    """Whether the others leave if some pods cannot; otherwise a plan that leaves one behind does not begin."""

    harmless_owners: frozenset[str] = frozenset()
    """Kinds above controllers whose pods leave, as `harmlessOwners` of `DefaultEvictor` has them."""

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "NodeDrain":
        """Return the plugin with the arguments that a plan records; raises `InputError` that names the field."""
        refuse_unknown("args", args, (_NODES, _EMPTY_DIRS, _SKIP_REFUSED, _HARMLESS_OWNERS))
        nodes = args.get(_NODES)
        if not isinstance(nodes, list | tuple) or not nodes or not all(isinstance(node, str) for node in nodes):
            raise InputError(_NODES, nodes, "a list of names of nodes")
        flags_given = [args.get(argument, False) for argument in (_EMPTY_DIRS, _SKIP_REFUSED)]
        for flag_name, value in zip((_EMPTY_DIRS, _SKIP_REFUSED), flags_given, strict=True):
            if not isinstance(value, bool):
                raise InputError(flag_name, value, "true or false")
        return cls(
            nodes=frozenset(nodes),
            delete_empty_dirs=flags_given[0],
            skip_refused=flags_given[1],
            harmless_owners=read_owner_kinds(_HARMLESS_OWNERS, args.get(_HARMLESS_OWNERS)),
        )

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        set_flags = {_EMPTY_DIRS: self.delete_empty_dirs, _SKIP_REFUSED: self.skip_refused}
        owner_kinds = {_HARMLESS_OWNERS: sorted(self.harmless_owners)} if self.harmless_owners else {}
        args = {_NODES: sorted(self.nodes), **set_flags, **owner_kinds}
        return Objective(plugin=NODE_DRAIN, strategy=self.goal.name, args=args)

    @property
    def evictor_args(self) -> dict[str, Any]:
        return {"evictLocalStoragePods": self.delete_empty_dirs, "harmlessOwners": sorted(self.harmless_owners)}

    def strategy(self, deadline: Deadline) -> Strategy:
        """Return the strategy that moves nothing but the pods that `deschedule` names."""
        return self.goal.strategy(None, deadline)

    def deschedule(self, view: ClusterView) -> Iterator[Candidate]:
        """Yield the pods that leave."""
        # Largest first, as first-fit decreasing does: small pods still find a place where large ones do not.
        snapshot = view.snapshot
        other_nodes = frozenset(node.metadata.name for node in snapshot.nodes) - self.nodes
        shares = _Shares(snapshot)
        pods_on_nodes = (pod for pod in snapshot.pods if pod.spec.node_name in self.nodes)
        # As kubectl drain --ignore-daemonsets: the DaemonSet controller would make its pods anew at once, for they
        # tolerate the cordon (`AddOrUpdateDaemonPodTolerations`).
        leaving_pods = (pod for pod in pods_on_nodes if pod.occupies_node and not pod.is_terminating)
        for pod in sorted(leaving_pods, key=lambda candidate: (-shares.largest(candidate), candidate.key)):
            reason = f"{pod.spec.node_name} is drained"
            yield Candidate(pod.metadata.namespace, pod.metadata.name, reason, nodes=other_nodes)

    def carried_out(self, cycle: CycleSettings) -> CycleSettings:
        """Return the settings of a drain's cycles."""
        # All places are held before the first pod goes. No cool-down: pods that were moved lately leave, too. And no
        # node is marked as freed: what becomes of it is up to those who drain it.
        execution = replace(cycle.execution, holds_all=True, max_open_moves=MOST_IN_A_WAVE)
        return replace(
            cycle, execution=execution, pod_cool_down=timedelta(0), node_cool_down=timedelta(0), freed=FreedNodes()
        )

    def why_blocked(self, moves: Iterable[PlannedMove]) -> str:
        """Return why none of the moves begins, "" if nothing is wrong with them."""
        is_about_them = self.nodes.issuperset(move.source for move in moves)
        return "" if is_about_them else "it moves pods off other nodes than those that it drains"

    def why_not_begun(self, plan: Plan, snapshot: Snapshot, mode: RunMode | None) -> NotBegun | None:
        """Return why a drain with staying pods or uncordoned nodes does not begin; None if it begins, or only plans."""
        nodes = (node for node in snapshot.nodes if node.metadata.name in self.nodes)
        uncordoned_nodes = [node.metadata.name for node in nodes if not node.spec.unschedulable]
        # A node may have been uncordoned meanwhile: pods would come to it as fast as they leave.
        if uncordoned_nodes and mode is not RunMode.PLAN:
            text = f"Not begun: not cordoned: {names_of(uncordoned_nodes)}."
            return NotBegun(Verdict.NOT_CORDONED, text, passes=False)
        staying_pods = () if self.skip_refused else plan.pods_staying_on(self.nodes)
        if not staying_pods:
            return None
        pods_in_words = sorted(f"{refused.namespace}/{refused.name} ({refused.reason})" for refused in staying_pods)
        text = f"Not begun: {count(len(staying_pods), 'pod')} cannot leave: {first_few(pods_in_words, _STAYING_SHOWN)}."
        return NotBegun(Verdict.PODS_STAY, text, passes=all(may_pass(refused.reason) for refused in staying_pods))


class _Shares:
    """The sizes of pods as shares of what all nodes have."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._all = ResourceAmounts.total(map(_allocatable, snapshot.nodes))

    def largest(self, pod: Pod) -> float:
        """Return the largest share of a resource that a pod asks for."""
        pod_requests = readable_requests(pod).items()
        return max(
            (amount / self._all.get(resource) for resource, amount in pod_requests if self._all.get(resource) > 0),
            default=0.0,
        )


def _allocatable(node: Node) -> ResourceAmounts:
    """Return what a node has for pods, nothing if that cannot be read."""
    try:
        return ResourceAmounts.from_quantities(node.status.allocatable)
    except InputError:
        return ResourceAmounts.empty()
