"""Which pods are on nodes."""

from collections.abc import Iterable
from typing import Final

from berth_core import ObjectMeta, Pod, PodSpec, PodStatus, SchedulingGate
from berth_core.objects.metadata import ApiStruct
from berth_kube import PODS, KubeClient


class _PodSpecHead(ApiStruct, frozen=True, kw_only=True):
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _PodStatusHead(ApiStruct, frozen=True, kw_only=True):
    phase: str = ""


class PodHead(ApiStruct, frozen=True, kw_only=True):
    """The part of a pod that says where it is: a whole pod takes eight times as much memory."""

    metadata: ObjectMeta
    spec: _PodSpecHead = _PodSpecHead()
    status: _PodStatusHead = _PodStatusHead()

    def as_pod(self) -> Pod:
        spec = PodSpec(node_name=self.spec.node_name, scheduling_gates=self.spec.scheduling_gates)
        return Pod(metadata=self.metadata, spec=spec, status=PodStatus(phase=self.status.phase))


def is_free(pods: Iterable[Pod]) -> bool:
    """Return whether no pod occupies a node; DaemonSet, mirror and terminating pods do not count."""
    return not any(pod.occupies_node and not pod.is_terminating for pod in pods)


def pods_where(client: KubeClient, field_selector: str) -> tuple[Pod, ...]:
    return client.list(PODS, field_selector=field_selector, type=Pod).items


_FEW_NODES: Final = 20
"""For at most this many nodes, pods are listed node by node."""


def read_pods_on(client: KubeClient, names: frozenset[str]) -> list[Pod]:
    """Return the pods on nodes, also those that are being deleted."""
    if len(names) <= _FEW_NODES:
        return [pod for node in sorted(names) for pod in pods_where(client, f"spec.nodeName={node}")]
    # A field selector takes one node's name, and the watch cache of the API server has an index for it; for many nodes
    # one list of all pods costs less than a call for each.
    return [pod for pod in client.list(PODS, type=Pod).items if pod.spec.node_name in names]


def used_nodes(client: KubeClient, names: frozenset[str]) -> frozenset[str]:
    """Return those of the named nodes that are not free; a list of all pods is kept as heads only."""
    if len(names) <= _FEW_NODES:
        pods = read_pods_on(client, names)
    else:
        heads = client.list(PODS, type=PodHead).items
        pods = [head.as_pod() for head in heads if head.spec.node_name in names]
    return frozenset(pod.spec.node_name for pod in pods if not is_free((pod,)))
