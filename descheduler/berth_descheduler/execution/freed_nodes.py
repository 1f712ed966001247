"""Owns what a plan puts on nodes that it freed, a soft taint and annotations, and that it goes when they are needed.

It does not own the draining taint (`source_taints`) nor which nodes were freed (`landing`).

All facts are on the node: the mark, an annotation, says when and for whom it was freed and which annotations were put
on for that. Mark, taint and annotations come and go in one write each, so nothing can be left halfway.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from berth_core.clock import Clock, format_timestamp
from berth_core.errors import BerthError
from berth_core.labels import FREED_ANNOTATION, FREED_TAINT
from berth_core.objects import Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler import log_keys
from berth_descheduler.execution.landing import is_free
from berth_descheduler.planner.room_seekers import is_pending
from berth_descheduler.planner.waiting_pods import nodes_for_waiting_pods
from berth_descheduler.settings import FreedNodes
from berth_kube.client import KubeClient
from berth_kube.errors import ConflictError, NotFoundError
from berth_kube.resources import NODES, PODS

_LOG = structlog.get_logger(__name__)
_TRIES: Final = 8
_FEW_NODES: Final = 20
"""Up to so many marked nodes, their pods are listed node by node."""


class FreedMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is noted on a freed node."""

    at: str
    plan: str
    policy: str = ""
    annotations: dict[str, str] = {}
    """What was put on the node beside the mark."""


Wanted = Callable[[FreedMark], FreedNodes]
"""What is to be on a node with such a mark now; by it a policy that has changed or is gone takes its marks back."""


@dataclass(frozen=True, slots=True)
class Freeing:
    """For whom nodes were freed, and what they are to carry."""

    plan: str
    policy: str
    carries: FreedNodes


def mark_freed(client: KubeClient, clock: Clock, nodes: Iterable[str], freeing: Freeing) -> tuple[str, ...]:
    """Put on nodes that were freed what they are to carry, and return those that carry it; failures are only told."""
    marked = []
    for node in nodes if not freeing.carries.nothing else ():
        try:
            change_node(client, node, lambda raw: _marked(raw, freeing, format_timestamp(clock.now())))
        except NotFoundError:
            continue
        except BerthError as error:
            _LOG.warning(log_keys.MARK_FAILED, **{log_keys.KEY_NODE: node, log_keys.KEY_ERROR: str(error)})
            continue
        marked.append(node)
        _LOG.info(log_keys.MARKED, **{log_keys.KEY_NODE: node, log_keys.KEY_PLAN: freeing.plan})
    return tuple(marked)


def sweep_freed_nodes(
    client: KubeClient, read_snapshot: Callable[[], Snapshot], wanted: Wanted | None = None
) -> tuple[str, ...]:
    """Take the marks off freed nodes that are needed, or that nobody wants marked; return the nodes that changed.

    A node is needed when a pod is on it, DaemonSet and mirror pods aside, or when one that waits would go there. Where
    nothing is marked it costs one list of the nodes. What cannot be changed now is left to the next sweep.
    """
    marked = {node.metadata.name: node for node in client.list(NODES, type=Node).items if is_marked(node)}
    if not marked:
        return ()
    needed = _nodes_in_use(client, marked) | _nodes_waited_for(client, marked, read_snapshot)
    changed = []
    for name, node in sorted(marked.items()):
        mark = read_mark(node.metadata.annotations)
        keeps = FreedNodes() if mark is None or name in needed else _kept(node, mark, wanted)
        if _sweep_one(client, name, keeps):
            changed.append(name)
    return tuple(changed)


def is_marked(node: Node) -> bool:
    """Tell whether a node carries anything of a freed one."""
    return FREED_ANNOTATION in node.metadata.annotations or any(taint.key == FREED_TAINT for taint in node.taints)


def read_mark(annotations: Mapping[str, str]) -> FreedMark | None:
    """Return the mark among a node's annotations, None if there is none that can be read."""
    try:
        return msgspec.json.decode(annotations.get(FREED_ANNOTATION, ""), type=FreedMark)
    except (msgspec.DecodeError, RecursionError):
        return None


def _kept(node: Node, mark: FreedMark, wanted: Wanted | None) -> FreedNodes:
    """Return what of its mark a node keeps."""
    tainted = any(taint.key == FREED_TAINT for taint in node.taints)
    if wanted is None:
        return FreedNodes(taint=tainted, annotations=mark.annotations)
    now = wanted(mark)
    annotations = {key: value for key, value in mark.annotations.items() if now.annotations.get(key) == value}
    return FreedNodes(taint=tainted and now.taint, annotations=annotations)


def _sweep_one(client: KubeClient, name: str, keeps: FreedNodes) -> bool:
    """Bring a node to what it keeps, and tell whether anything was written."""
    try:
        changed = change_node(client, name, lambda raw: _stripped(raw, keeps))
    except NotFoundError:
        return False
    except BerthError as error:
        _LOG.warning(log_keys.UNMARK_FAILED, **{log_keys.KEY_NODE: name, log_keys.KEY_ERROR: str(error)})
        return False
    if changed:
        _LOG.info(log_keys.UNMARKED, **{log_keys.KEY_NODE: name})
    return changed


def _nodes_in_use(client: KubeClient, marked: Iterable[str]) -> frozenset[str]:
    names = frozenset(marked)
    if len(names) <= _FEW_NODES:
        pods = [pod for name in sorted(names) for pod in _pods_where(client, f"spec.nodeName={name}")]
    else:
        pods = [pod for pod in client.list(PODS, type=Pod).items if pod.spec.node_name in names]
    return frozenset(pod.spec.node_name for pod in pods if not is_free((pod,)))


def _nodes_waited_for(
    client: KubeClient, marked: Iterable[str], read_snapshot: Callable[[], Snapshot]
) -> frozenset[str]:
    if not any(is_pending(pod) for pod in _pods_where(client, "spec.nodeName=")):
        return frozenset()
    return nodes_for_waiting_pods(read_snapshot(), marked)


def _pods_where(client: KubeClient, field_selector: str) -> Sequence[Pod]:
    return client.list(PODS, field_selector=field_selector, type=Pod).items


# --- writing ----------------------------------------------------------------------------------------------------------

RawNode = Mapping[str, Any]


def change_node(client: KubeClient, name: str, change: Callable[[RawNode], dict[str, Any] | None]) -> bool:
    """Read a node and write what is to change, until nobody wrote in between; tell whether anything was written."""
    conflict: ConflictError | None = None
    for _ in range(_TRIES):
        raw = client.get(NODES, name)
        patch = change(raw)
        if patch is None:
            return False
        patch["metadata"]["resourceVersion"] = raw["metadata"]["resourceVersion"]
        try:
            client.merge_patch(NODES, name, patch)
        except ConflictError as error:
            conflict = error
            continue
        return True
    raise conflict or AssertionError("unreachable: at least one try is made")


def _marked(raw: RawNode, freeing: Freeing, at: str) -> dict[str, Any]:
    """Return the patch that marks a node; what somebody else has annotated it with stays and is not ours."""
    there = raw["metadata"].get("annotations") or {}
    ours = _annotations_of(there)
    annotations = {key: value for key, value in freeing.carries.annotations.items() if key not in there or key in ours}
    mark = FreedMark(at=at, plan=freeing.plan, policy=freeing.policy, annotations=annotations)
    notes: dict[str, str | None] = dict.fromkeys(ours.keys() - annotations.keys())
    notes |= {**annotations, FREED_ANNOTATION: msgspec.json.encode(mark).decode()}
    taint = {"key": FREED_TAINT, "value": freeing.plan, "effect": "PreferNoSchedule"}
    taints = [*_taints_of_others(raw), *([taint] if freeing.carries.taint else [])]
    return {"metadata": {"annotations": notes}, "spec": {"taints": taints or None}}


def _stripped(raw: RawNode, keeps: FreedNodes) -> dict[str, Any] | None:
    """Return the patch that leaves on a node what it keeps, None if nothing is to be changed."""
    there = raw["metadata"].get("annotations") or {}
    ours = _annotations_of(there)
    notes: dict[str, str | None] = {
        key: None for key, value in ours.items() if key not in keeps.annotations and there.get(key) == value
    }
    taints = raw["spec"].get("taints") or []
    others = _taints_of_others(raw)
    kept = taints if keeps.taint else others
    if keeps.nothing and FREED_ANNOTATION in there:
        notes[FREED_ANNOTATION] = None
    if not notes and kept == taints:
        return None
    return {"metadata": {"annotations": notes}, "spec": {"taints": kept or None}}


def _taints_of_others(raw: RawNode) -> list[dict[str, Any]]:
    return [taint for taint in raw["spec"].get("taints") or [] if taint["key"] != FREED_TAINT]


def _annotations_of(there: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations that the mark among these names as put on with it."""
    mark = read_mark(there)
    return {} if mark is None else mark.annotations
