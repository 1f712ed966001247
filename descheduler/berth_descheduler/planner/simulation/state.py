"""The simulated cluster, move by move, with undo: free amounts, ports and the pods' nodes."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from berth_core import PODS
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PodIndex
from berth_descheduler.planner.simulation.node_fit import NodeFit
from berth_descheduler.planner.simulation.pod_affinity import InterPodAffinity
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, covers_address
from berth_descheduler.planner.simulation.topology import PodTopologySpread


@dataclass(frozen=True, slots=True)
class Step:
    """One pod from its source to its target, in numbers.

    A target that equals the source stands for an eviction without a place; no state makes such a step.
    """

    pod: PodIndex
    source: NodeIndex
    target: NodeIndex


class State:
    """The cluster as it is after the steps so far.

    `refusal` answers for one more step with create before delete: the target has to have room while the source still
    holds the pod, and the neighbours have to allow it whether the old pod is there or not.
    """

    def __init__(self, cluster: Cluster, maybe_sources: Collection[NodeIndex] | None = None) -> None:
        """Begin with the snapshot; `maybe_sources` may be drained (None: all nodes), which matters to `topology`."""
        self.cluster = cluster
        self.node_fit = NodeFit(cluster)
        tainted = range(len(cluster.nodes)) if maybe_sources is None else maybe_sources
        self.pod_affinity = InterPodAffinity(cluster)
        self.topology_spread = PodTopologySpread(cluster, self.node_fit, [NodeIndex(node) for node in tainted])
        self.node_of: list[NodeIndex] = [placed_pod.node for placed_pod in cluster.pods]
        self.free: list[list[int]] = [list(row) for row in cluster.capacity]  # (nodes, resources)
        self._ports: list[dict[tuple[str, int], Counter[str]]] = [{} for _ in cluster.nodes]
        """The pods of each node that hold a port, by protocol and number, and then by address."""
        self._steps: list[Step] = []
        self._lacks: dict[tuple[int, ...], Refusal] = {}
        """The refusals for want of resources, by the columns of which there is too little."""

        self._needs = tuple(
            tuple((column, amount) for column, amount in enumerate(row) if amount > 0) for row in cluster.requests
        )
        for node, taken in enumerate(cluster.taken):
            self.free[node] = [free_amount - used for free_amount, used in zip(self.free[node], taken, strict=True)]
        self._take_ports()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps so far, in order."""
        return tuple(self._steps)

    def mark(self) -> int:
        """Return the number of steps so far, for `undo_to`."""
        return len(self._steps)

    def undo_to(self, mark: int) -> None:
        """Take back every step after a mark."""
        while len(self._steps) > mark:
            step = self._steps.pop()
            self._carry(step.pod, step.target, step.source)

    def move(self, pod: PodIndex, target: NodeIndex) -> None:
        """Make a step; `refusal` says whether it is allowed."""
        source = self.node_of[pod]
        self._carry(pod, source, target)
        self._steps.append(Step(pod, source, target))

    def depends_on_others(self, class_index: ClassIndex) -> bool:
        """Return whether other pods, requests aside, restrict where a class fits."""
        return self.pod_affinity.is_constrained(class_index) or self.topology_spread.is_constrained(class_index)

    def is_independent(self, class_index: ClassIndex) -> bool:
        """Return whether requests and node constraints alone decide where a class fits, and it restricts no others."""
        return not (
            self.depends_on_others(class_index)
            or self.pod_affinity.is_counted(class_index)
            or self.topology_spread.is_counted(class_index)
            or self.cluster.classes[class_index].host_ports
        )

    def is_tied_by_affinity_alone(self, class_index: ClassIndex) -> bool:
        """Return whether other pods restrict a class, or it restricts them, by affinities and nothing else."""
        return not (
            self.topology_spread.is_constrained(class_index)
            or self.topology_spread.is_counted(class_index)
            or self.cluster.classes[class_index].host_ports
        )

    def fits(self, class_index: ClassIndex, node: NodeIndex) -> bool:
        """Return whether a node has free what a class requests; other resources may be overcommitted."""
        free = self.free[node]
        # Like `fitsRequest` of kube-scheduler (noderesources/fit.go), which compares only what the pod requests.
        return all(amount <= free[column] for column, amount in self._needs[class_index])

    def refusal(self, pod: PodIndex, target: NodeIndex) -> Refusal | None:
        """Return why a pod cannot go to a node now, None if it can."""
        source = self.node_of[pod]
        class_index = self.cluster.pods[pod].class_index
        if source == target:
            return Refusal(RefusalReason.SAME_NODE, "the pod is there already")
        return (
            self.node_fit.refusal(class_index, target)
            or self._lack(class_index, target)
            or self.refusal_by_others(pod, target)
        )

    def refusal_by_others(self, pod: PodIndex, target: NodeIndex) -> Refusal | None:
        """Return why other pods keep a pod off a node, requests aside."""
        source, class_index = self.node_of[pod], self.cluster.pods[pod].class_index
        return (
            self._port_conflict(class_index, target)
            or self.pod_affinity.refusal(class_index, source, target)
            or self.topology_spread.refusal(class_index, source, target)
        )

    def _lack(self, class_index: ClassIndex, node: NodeIndex) -> Refusal | None:
        if self.fits(class_index, node):
            return None
        free = self.free[node]
        lacking_columns = tuple(column for column, amount in self._needs[class_index] if amount > free[column])
        if lacking_columns not in self._lacks:
            self._lacks[lacking_columns] = self._lack_of(lacking_columns)
        return self._lacks[lacking_columns]

    def _lack_of(self, columns: tuple[int, ...]) -> Refusal:
        """Return the refusal for lack in some columns; a budget's own where no resource is short."""
        resources = self.cluster.resources
        names = sorted(resources[column] for column in columns if column < len(resources))
        if not names:
            return self.cluster.budgets[columns[0] - len(resources)].refusal
        text = f"not enough {', '.join('pod slots' if name == PODS else name for name in names)}"
        return Refusal(RefusalReason.INSUFFICIENT_RESOURCES, text, resource=names[0])

    def _port_conflict(self, class_index: ClassIndex, node: NodeIndex) -> Refusal | None:
        taken_ports = self._ports[node]
        for wanted_port in self.cluster.classes[class_index].host_ports if taken_ports else ():
            addresses = taken_ports.get((wanted_port.protocol, wanted_port.port), ())
            if any(covers_address(wanted_port.address, taken_address) for taken_address in addresses):
                text = f"host port {wanted_port.port}/{wanted_port.protocol} is taken"
                return Refusal(RefusalReason.HOST_PORT, text)
        return None

    def _carry(self, pod: PodIndex, source: NodeIndex, target: NodeIndex) -> None:
        class_index = self.cluster.pods[pod].class_index
        self._hold(class_index, target, 1)
        self._hold(class_index, source, -1)
        self.pod_affinity.move(class_index, source, target)
        self.topology_spread.move(class_index, source, target)
        self.node_of[pod] = target

    def _take_ports(self) -> None:
        with_ports = {pods.index for pods in self.cluster.classes if pods.host_ports}
        for placed_pod in self.cluster.pods if with_ports else ():
            if placed_pod.class_index in with_ports:
                self._hold_ports(placed_pod.class_index, placed_pod.node, 1)

    def _hold(self, class_index: ClassIndex, node: NodeIndex, times: int) -> None:
        free = self.free[node]
        for column, amount in self._needs[class_index]:
            free[column] -= amount * times
        if self.cluster.classes[class_index].host_ports:
            self._hold_ports(class_index, node, times)

    def _hold_ports(self, class_index: ClassIndex, node: NodeIndex, times: int) -> None:
        ports = self._ports[node]
        for port in self.cluster.classes[class_index].host_ports:
            key = port.protocol, port.port
            addresses = ports.setdefault(key, Counter())
            addresses[port.address] += times
            if not addresses[port.address]:
                del addresses[port.address]
            if not addresses:
                del ports[key]
