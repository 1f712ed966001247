"""The soft taint and the annotations of nodes that a plan freed; they go when a node is needed.

All facts are on the node: the mark, an annotation, says when and by which plan it was freed and which annotations
came with that. Mark, taint and annotations come and go in one write each, so nothing is left half done.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog

from berth_core import (
    FREED_ANNOTATION,
    FREED_TAINT,
    Affinity,
    BerthError,
    Clock,
    Node,
    ObjectMeta,
    Pod,
    Snapshot,
    format_timestamp,
)
from berth_core.decoding import decode_json
from berth_descheduler import telemetry
from berth_descheduler.migration.nodes.pods import pods_where, used_nodes
from berth_descheduler.migration.nodes.writes import RawNode, change_node
from berth_descheduler.planner import is_pending, nodes_for_waiting_pods
from berth_descheduler.settings import FreedNodes
from berth_kube import KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)


class FreedMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation on a freed node."""

    at: str
    plan: str
    policy: str = ""
    annotations: dict[str, str] = {}
    """The annotations that came with the mark."""


Wanted = Callable[[FreedMark], FreedNodes]
"""Returns what a marked node should carry now: a changed or deleted policy withdraws its marks."""


@dataclass(frozen=True, slots=True)
class Freeing:
    """The plan and policy that freed nodes, and the nodes' marks."""

    plan: str
    policy: str
    carries: FreedNodes


def mark_freed(client: KubeClient, clock: Clock, nodes: Iterable[str], freeing: Freeing) -> tuple[str, ...]:
    """Mark freed nodes and return those marked; failures are only logged."""
    marked_nodes = []
    for node in nodes if not freeing.carries.nothing else ():
        try:
            change_node(client, node, lambda raw_node: _build_mark(raw_node, freeing, format_timestamp(clock.now())))
        except NotFoundError:
            continue
        except BerthError as error:
            _LOG.warning(telemetry.MARK_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
            continue
        marked_nodes.append(node)
        _LOG.info(telemetry.MARKED, **{telemetry.KEY_NODE: node, telemetry.KEY_PLAN: freeing.plan})
    return tuple(marked_nodes)


class PodWhereabouts(Protocol):
    """Where pods are."""

    def nodes_in_use(self, nodes: Collection[str]) -> frozenset[str]:
        """Return those of `nodes` that have a pod, DaemonSet and mirror pods aside; raises a `KubeError`.

        It is also called without nodes, so that a watch which answers may end.
        """
        ...

    def may_pods_wait(self) -> bool:
        """Return False if it is known that no pod waits for room."""
        ...


class ReadWhereabouts(PodWhereabouts):
    """Reads pods whenever it is asked."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def nodes_in_use(self, nodes: Collection[str]) -> frozenset[str]:
        return used_nodes(self._client, frozenset(nodes))

    def may_pods_wait(self) -> bool:
        return True  # not known: the caller reads the pending pods next


def sweep_freed_nodes(
    client: KubeClient,
    nodes: Iterable[Node],
    read_snapshot: Callable[[], Snapshot],
    wanted: Wanted | None = None,
    whereabouts: PodWhereabouts | None = None,
) -> tuple[str, ...]:
    """Remove outdated marks from freed nodes; return the changed nodes.

    A mark goes when its node is needed, or when it is no longer wanted. A node is needed when a pod is on it, DaemonSet
    and mirror pods aside, or when a pending pod would go there. Without marks this costs nothing, and without a pending
    pod that a marked node could take only what `whereabouts` costs. The next sweep retries what fails.
    """
    whereabouts = whereabouts or ReadWhereabouts(client)
    marked_nodes = {node.metadata.name: node for node in nodes if node.is_marked_as_freed}
    needed_nodes = whereabouts.nodes_in_use(marked_nodes)  # asked without marks, too: a watch then ends
    if not marked_nodes:
        return ()
    if whereabouts.may_pods_wait():
        needed_nodes |= _nodes_waited_for(client, marked_nodes, read_snapshot)
    changed_nodes = []
    for node_name, node in sorted(marked_nodes.items()):
        mark = read_mark(node.metadata.annotations)
        marks_to_keep = FreedNodes() if mark is None or node_name in needed_nodes else _kept(node, mark, wanted)
        if _build_removal(_as_raw(node), marks_to_keep) is not None and _sweep_node(client, node_name, marks_to_keep):
            changed_nodes.append(node_name)
    return tuple(changed_nodes)


def read_mark(annotations: Mapping[str, str]) -> FreedMark | None:
    """Return the mark in a node's annotations, None without a readable one."""
    try:
        return decode_json(annotations.get(FREED_ANNOTATION, ""), FreedMark)
    except msgspec.DecodeError:
        return None


def _kept(node: Node, mark: FreedMark, wanted: Wanted | None) -> FreedNodes:
    """Return what a marked node keeps."""
    is_tainted = any(taint.key == FREED_TAINT for taint in node.taints)
    if wanted is None:
        return FreedNodes(taint=is_tainted, annotations=mark.annotations)
    now = wanted(mark)
    annotations = {key: value for key, value in mark.annotations.items() if now.annotations.get(key) == value}
    return FreedNodes(taint=is_tainted and now.taint, annotations=annotations)


def _sweep_node(client: KubeClient, name: str, keeps: FreedNodes) -> bool:
    """Remove from a node what it does not keep, and return whether anything was written."""
    try:
        is_changed = change_node(client, name, lambda raw_node: _build_removal(raw_node, keeps))
    except NotFoundError:
        return False
    except BerthError as error:
        _LOG.warning(telemetry.UNMARK_FAILED, **{telemetry.KEY_NODE: name, telemetry.KEY_ERROR: str(error)})
        return False
    if is_changed:
        _LOG.info(telemetry.UNMARKED, **{telemetry.KEY_NODE: name})
    return is_changed


def _as_raw(node: Node) -> RawNode:
    """Return the part of a node that its mark depends on, as the API has it."""
    annotations, taints = node.metadata.annotations, node.spec.taints
    return {"metadata": {"annotations": annotations}, "spec": {"taints": list(map(msgspec.to_builtins, taints))}}


def _nodes_waited_for(
    client: KubeClient, marked: Mapping[str, Node], read_snapshot: Callable[[], Snapshot]
) -> frozenset[str]:
    """Return the marked nodes that pending pods would go to.

    The whole cluster is read only if one of them could go there: a pod that fits nowhere may be pending for months.
    """
    # A field selector that the API server supports for pods: only those without a node cross the wire.
    waiting = tuple(_without_neighbours(pod) for pod in pods_where(client, "spec.nodeName=") if is_pending(pod))
    # Needs that only the rest of the cluster could answer, such as affinity to other pods, are left out here: that may
    # let a pod through for nothing, and never leaves one out.
    if not nodes_for_waiting_pods(Snapshot(nodes=tuple(marked.values()), pods=waiting), marked):
        return frozenset()
    return nodes_for_waiting_pods(read_snapshot(), marked)


def _without_neighbours(pod: Pod) -> Pod:
    """Return a pod whose needs one node alone decides about."""
    head, spec = pod.metadata, pod.spec
    node_affinity = None if spec.affinity is None else Affinity(node_affinity=spec.affinity.node_affinity)
    return Pod(
        metadata=ObjectMeta(name=head.name, namespace=head.namespace, uid=head.uid),
        spec=msgspec.structs.replace(
            spec,
            affinity=node_affinity,
            topology_spread_constraints=(),
            volumes=(),
            resource_claims=(),
            scheduling_group=None,
            workload_ref=None,
        ),
        status=pod.status,
    )


def _build_mark(raw: RawNode, freeing: Freeing, at: str) -> dict[str, Any]:
    """Return the patch that marks a node; annotations that others have set stay theirs."""
    present_annotations = raw["metadata"].get("annotations") or {}
    our_annotations = _annotations_of(present_annotations)
    annotations = {
        key: value
        for key, value in freeing.carries.annotations.items()
        # An annotation such as scale-down-disabled that people have set keeps its value, and is not removed with the
        # mark.
        if key not in present_annotations or key in our_annotations
    }
    mark = FreedMark(at=at, plan=freeing.plan, policy=freeing.policy, annotations=annotations)
    notes: dict[str, str | None] = dict.fromkeys(our_annotations.keys() - annotations.keys())
    notes |= {**annotations, FREED_ANNOTATION: msgspec.json.encode(mark).decode()}
    # Soft: the scheduler still takes the node before a pod stays pending, while an autoscaler sees it empty for its own
    # time.
    taint = {"key": FREED_TAINT, "value": freeing.plan, "effect": "PreferNoSchedule"}
    taints = [*_taints_of_others(raw), *([taint] if freeing.carries.taint else [])]
    # In a merge patch null removes the field (RFC 7386).
    return {"metadata": {"annotations": notes}, "spec": {"taints": taints or None}}


def _build_removal(raw: RawNode, keeps: FreedNodes) -> dict[str, Any] | None:
    """Return the patch that leaves only what a node keeps, None if nothing changes."""
    present_annotations = raw["metadata"].get("annotations") or {}
    our_annotations = _annotations_of(present_annotations)
    notes: dict[str, str | None] = {
        key: None
        for key, value in our_annotations.items()
        # A value that others have changed since is theirs by now.
        if key not in keeps.annotations and present_annotations.get(key) == value
    }
    taints = raw["spec"].get("taints") or []
    taints_of_others = _taints_of_others(raw)
    taints_kept = taints if keeps.taint else taints_of_others
    if keeps.nothing and FREED_ANNOTATION in present_annotations:
        notes[FREED_ANNOTATION] = None
    if not notes and taints_kept == taints:
        return None
    return {"metadata": {"annotations": notes}, "spec": {"taints": taints_kept or None}}


def _taints_of_others(raw: RawNode) -> list[dict[str, Any]]:
    return [taint for taint in raw["spec"].get("taints") or [] if taint["key"] != FREED_TAINT]


def _annotations_of(node_annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations that came with the mark, as the mark itself lists them."""
    mark = read_mark(node_annotations)
    return {} if mark is None else mark.annotations
