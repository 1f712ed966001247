"""The plugin of `berth drain`: every pod leaves some nodes, and goes to one of the others.

It is for commands and not for policies. DaemonSet and mirror pods belong to their nodes, and pods that have ended or
are being deleted go by themselves: none of them is named.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from berth_core import (
    InputError,
    Node,
    Objective,
    PlannedMove,
    Pod,
    ResourceAmounts,
    Snapshot,
    count,
    readable_requests,
    refuse_unknown,
)
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.goals.move_pods.goal import MovePodsGoal
from berth_descheduler.planner import Plan
from berth_descheduler.plugins.default_evictor_args import read_owner_kinds
from berth_descheduler.plugins.defragmentation import NoBalance

NODE_DRAIN: Final = "NodeDrain"
"""The name by which plans record that they drain nodes."""

_NODES: Final = "nodes"
_EMPTY_DIRS: Final = "deleteEmptyDirData"
_SKIP_REFUSED: Final = "skipRefused"
_HARMLESS_OWNERS: Final = "harmlessOwners"


class DrainNodesGoal(MovePodsGoal):
    """Moves the pods off nodes that are drained."""

    def sentence(self, plan: Plan) -> str:
        nodes = NodeDrain.parse(plan.objective.args).nodes
        staying_pods = len(plan.pods_staying_on(nodes))
        staying_text = f" {count(staying_pods, 'pod')} cannot go." if staying_pods else ""
        if not plan.moves:
            return f"Nothing to move off {count(len(nodes), 'node')}.{staying_text}"
        moves, waves = PlannedMove.count_all(plan.moves), count(plan.waves, "wave")
        return f"{moves} in {waves} drain {count(len(nodes), 'node')}.{staying_text}"


@dataclass(frozen=True, slots=True)
class NodeDrain(NoBalance):
    """Names the pods that leave the nodes, the largest first, and moves no others."""

    goal: ClassVar[MovePodsGoal] = DrainNodesGoal()

    nodes: frozenset[str] = frozenset()

    delete_empty_dirs: bool = False
    """Whether pods leave that lose the data of their `emptyDir` volumes."""

    skip_refused: bool = False
    """Whether the others leave where some pods cannot; if not, a plan that leaves one behind does not begin."""

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

    def deschedule(self, view: ClusterView) -> Iterator[Candidate]:
        """Yield the pods that leave; small ones come last, since they find a place more easily."""
        snapshot = view.snapshot
        other_nodes = frozenset(node.metadata.name for node in snapshot.nodes) - self.nodes
        shares = _Shares(snapshot)
        pods_on_nodes = (pod for pod in snapshot.pods if pod.spec.node_name in self.nodes)
        leaving_pods = (pod for pod in pods_on_nodes if pod.occupies_node and not pod.is_terminating)
        for pod in sorted(leaving_pods, key=lambda candidate: (-shares.largest(candidate), candidate.key)):
            reason = f"{pod.spec.node_name} is drained"
            yield Candidate(pod.metadata.namespace, pod.metadata.name, reason, nodes=other_nodes)


def drain_of(objective: Objective) -> NodeDrain | None:
    """Return what a plan drains, None for a plan for something else; raises `InputError`."""
    return NodeDrain.parse(objective.args) if objective.plugin == NODE_DRAIN else None


class _Shares:
    """How large pods are beside what all nodes have."""

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
