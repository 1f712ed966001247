"""Classes of pods with the same owner, labels, requests and constraints."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NewType

import msgspec

from berth_core import (
    Affinity,
    Container,
    ContainerPort,
    InputError,
    Pod,
    PodAffinity,
    PodSpec,
    ResourceAmounts,
    TopologySpreadConstraint,
    effective_requests,
    occupied_requests,
)
from berth_core.objects.pods import ANY_ADDRESS
from berth_core.objects.scheduling import SPREAD_HARD
from berth_core.pod_requests import is_resize_infeasible
from berth_descheduler.planner.simulation.platforms import PlatformTie

ClassIndex = NewType("ClassIndex", int)

PodKey = NewType("PodKey", int)
"""The number of all pods that, by their own fields, every rule treats alike."""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port that a pod takes of its node."""

    protocol: str
    port: int
    address: str

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether one node cannot provide both."""
        same_port = (self.protocol, self.port) == (other.protocol, other.port)
        return same_port and covers_address(self.address, other.address)


def covers_address(address: str, other: str) -> bool:
    """Return whether two pods cannot take one port of a node on these addresses."""
    # As `HostPortInfo.CheckConflict` of kube-scheduler: the wildcard address conflicts with every address.
    return address == other or ANY_ADDRESS in {address, other}


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that every rule treats alike, with one of them as the `example`."""

    index: ClassIndex
    example: Pod
    amounts: ResourceAmounts
    host_ports: tuple[HostPort, ...]
    claims: tuple[str, ...]
    """Names of the PersistentVolumeClaims, sorted."""

    odd: str = ""
    """Why the pods' requests are unreadable; they then count as zero, which no rule may rely on."""

    is_preemptable: bool = False
    """Whether lent nodes take the pods while they are open; not asked where no node is lent."""

    demands: tuple[int | None, ...] = ()
    """What a pod takes of each budget of the rules; None where that is not known."""

    platforms: PlatformTie | None = None
    """Where the pods' images are known to run; None where nothing is known, or all nodes are alike."""

    @property
    def namespace(self) -> str:
        return self.example.metadata.namespace

    @property
    def labels(self) -> dict[str, str]:
        return self.example.metadata.labels

    @property
    def hard_spreads(self) -> tuple[TopologySpreadConstraint, ...]:
        """Return the spread constraints that keep a pod off a node."""
        spreads = self.example.spec.topology_spread_constraints
        return tuple(spread for spread in spreads if spread.when_unsatisfiable == SPREAD_HARD)


class PodKeys:
    """Gives every pod its key, and remembers what is the same for all pods of a key."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], PodKey] = {}
        self._amounts: dict[PodKey, tuple[ResourceAmounts, str]] = {}
        self._host_ports: dict[PodKey, tuple[HostPort, ...]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def key_of(self, pod: Pod) -> PodKey:
        # Pods that are tied to their node share one class: a DaemonSet would otherwise have as many classes as the
        # cluster has nodes, and the search works on classes.
        stays = bool(pod.spec.node_name) and pod.belongs_to_node
        key = (stays, *_owner_key(pod, stays=stays), _what_rules_ask(pod, stays=stays))
        return self._numbers.setdefault(key, PodKey(len(self._numbers)))

    def amounts_of(self, key: PodKey, pod: Pod) -> tuple[ResourceAmounts, str]:
        """Return what a pod of a key takes, and what of it is unreadable."""
        if key not in self._amounts:
            self._amounts[key] = _amounts(pod)
        return self._amounts[key]

    def host_ports_of(self, key: PodKey, pod: Pod) -> tuple[HostPort, ...]:
        if key not in self._host_ports:
            self._host_ports[key] = host_ports(pod.spec)
        return self._host_ports[key]


class PodClasses:
    """Gives every pod its class; classes are numbered in the order in which they are first met."""

    def __init__(
        self,
        is_preemptable: Callable[[Pod], bool] | None = None,
        demands: Callable[[Pod], tuple[int | None, ...]] | None = None,
        platforms: Callable[[Pod], PlatformTie | None] | None = None,
        keys: PodKeys | None = None,
    ) -> None:
        """Without a function all pods are alike in what it returns; `keys` may know pods of earlier snapshots."""
        self._is_preemptable = is_preemptable
        self._demands = demands
        self._platforms = platforms
        self._keys = PodKeys() if keys is None else keys
        self._known: dict[object, ClassIndex] = {}
        self._classes: list[PodClass] = []
        self._are_alike = is_preemptable is None and demands is None and platforms is None

    @property
    def classes(self) -> tuple[PodClass, ...]:
        """Return all classes by their index."""
        return tuple(self._classes)

    def class_of(self, pod: Pod, pod_key: PodKey | None = None) -> ClassIndex:
        """Return the pod's class, a new one if none is like it; `pod_key` saves its computation where it is known."""
        if pod_key is None:
            pod_key = self._keys.key_of(pod)
        if self._are_alike:
            class_index = self._known.get(pod_key)
            return self._add(pod, pod_key, pod_key) if class_index is None else class_index
        is_preemptable = self._is_preemptable is not None and self._is_preemptable(pod)
        demands = () if self._demands is None else self._demands(pod)
        platforms = None if self._platforms is None else self._platforms(pod)
        key = (is_preemptable, demands, platforms, pod_key)
        class_index = self._known.get(key)
        if class_index is None:
            return self._add(pod, pod_key, key, is_preemptable=is_preemptable, demands=demands, platforms=platforms)
        return class_index

    def _add(
        self,
        pod: Pod,
        pod_key: PodKey,
        key: object,
        *,
        is_preemptable: bool = False,
        demands: tuple[int | None, ...] = (),
        platforms: PlatformTie | None = None,
    ) -> ClassIndex:
        index = self._known[key] = ClassIndex(len(self._classes))
        amounts, why_unreadable = self._keys.amounts_of(pod_key, pod)
        pod_class = PodClass(
            index=index,
            example=pod,
            amounts=amounts,
            host_ports=self._keys.host_ports_of(pod_key, pod),
            claims=pod.claim_names,
            odd=why_unreadable,
            is_preemptable=is_preemptable,
            demands=demands,
            platforms=platforms,
        )
        self._classes.append(pod_class)
        return index


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers and sidecars, like `GetHostPorts` of kube-scheduler."""
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    return tuple(sorted({*_ports(spec.containers), *_ports(sidecars)}))


def odd_requests(pod: Pod) -> str:
    """Return what of a pod's requests cannot be read, "" if nothing."""
    return _amounts(pod)[1]


def _ports(containers: Iterable[Container]) -> Iterable[HostPort]:
    return (_host_port(port) for container in containers for port in container.ports if port.host_port)


def _host_port(port: ContainerPort) -> HostPort:
    return HostPort(port.protocol or "TCP", port.host_port or 0, port.host_ip or ANY_ADDRESS)


def _owner_key(pod: Pod, *, stays: bool) -> tuple[str, str, str]:
    """Return a key that the pods of one owner share; mirror pods, each owned by its node, share one as well."""
    controller = pod.controller
    if controller is None:
        return (pod.metadata.namespace, "", "")
    uid = "" if stays and pod.is_mirror else controller.uid or controller.name
    return (pod.metadata.namespace, uid, controller.kind)


def _what_rules_ask(pod: Pod, *, stays: bool) -> bytes:
    """Return a key that two pods of one owner share if every rule treats them alike.

    Images, names and nodes do not count. For a pod that stays with its node whatever is planned, the node that it
    selects does not count either: a DaemonSet's pods are each tied to their own.
    """
    spec = pod.spec
    affinity = spec.affinity and (None if stays else spec.affinity.node_affinity, _between_pods(spec.affinity))
    parts = (
        (pod.metadata.labels, pod.metadata.unreadable),
        (_needs(spec.containers), _needs(spec.init_containers), spec.overhead, spec.resources, _granted(pod)),
        (affinity, spec.node_selector, spec.tolerations, spec.topology_spread_constraints),
        (spec.priority, pod.claim_names if spec.volumes else ()),
    )
    return msgspec.msgpack.encode(parts, order="deterministic")


def _between_pods(affinity: Affinity) -> tuple[PodAffinity | None, PodAffinity | None]:
    return affinity.pod_affinity, affinity.pod_anti_affinity


def _needs(containers: tuple[Container, ...]) -> list[tuple[object, ...]]:
    return [
        # `restartPolicy: Always` makes an init container a sidecar, whose requests last as long as the pod (KEP-753).
        (container.resources.requests, container.resources.limits, container.ports, container.restart_policy)
        for container in containers
    ]


def _granted(pod: Pod) -> list[tuple[object, ...]]:
    """Return the resources of containers and pod that the kubelet reports, which differ during a resize."""
    status = pod.status
    statuses = status.container_statuses
    if status.init_container_statuses:
        statuses = (*statuses, *status.init_container_statuses)
    granted: list[tuple[object, ...]] = [
        (container_status.name, container_status.resources, container_status.allocated_resources)
        for container_status in statuses
    ]
    if status.resources is not None or status.allocated_resources:
        granted.append(("", status.resources, status.allocated_resources))
    if granted and is_resize_infeasible(pod):
        granted.append(("", "Infeasible"))
    return granted


def _amounts(pod: Pod) -> tuple[ResourceAmounts, str]:
    """Return the greater of what a pod occupies and what its replacement requests, and what of them is unreadable."""
    if pod.metadata.unreadable:
        return ResourceAmounts.empty(), pod.metadata.unreadable
    try:
        # During an in-place resize (KEP-1287) the pod may hold more than its spec says, or its spec may ask for more
        # than it holds yet. Its source gives back what it holds, its target has to have what is asked for: the greater
        # is safe for both.
        amounts = effective_requests(pod.spec).largest(occupied_requests(pod))
    except InputError as error:
        return ResourceAmounts.empty(), str(error)
    excess = amounts.why_too_large()
    return (ResourceAmounts.empty(), f"its requests are odd: {excess}") if excess else (amounts, "")
