"""Sets and removes taints and marks on nodes.

They are those of running plans, freed nodes and nodes in cool-down.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from berth_core import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    DRAINING_TAINT,
    FREED_ANNOTATION,
    FREED_TAINT,
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
    ROOM_TAINT,
    BerthError,
    Clock,
    MigrationPlan,
    Node,
    PlannedMove,
    Pod,
    Snapshot,
    Taint,
    format_timestamp,
    is_marked_as_freed,
    is_room_taint_of,
    parse_timestamp,
    read_timestamp,
    room_taint_value,
)
from berth_core.decoding import decode_json
from berth_descheduler import telemetry
from berth_descheduler.planner import is_pending, nodes_for_waiting_pods
from berth_descheduler.settings import FreedNodes
from berth_kube import (
    NODES,
    PODS,
    ConflictError,
    KubeClient,
    NotFoundError,
    UnaddressableError,
    put_taint,
    remove_taint,
)

_LOG = structlog.get_logger(__name__)

PLAN_TAINTS: Final = (DRAINING_TAINT, ROOM_TAINT)
"""The first keeps off all new pods, the second all but those with a slot of the plan's Reservations."""


def nodes_to_empty(moves: Iterable[PlannedMove]) -> tuple[str, ...]:
    """Return the sources that no move goes to, sorted.

    A node that one pod leaves so that a larger one fits is source and target; tainted, it would take no placeholder.
    """
    sources, targets = set(), set()
    for move in moves:
        if not move.is_eviction:  # its node has a fence
            sources.add(move.source)
            targets.add(move.target)
    return tuple(sorted(sources - targets))


def nodes_of_open_rooms(plan: MigrationPlan) -> tuple[str, ...]:
    """Return the nodes of the rooms that moves have yet to make, sorted."""
    pairs = zip(plan.spec.rooms, plan.room_statuses, strict=True)
    made = (room for room, status in pairs if not room.waits and not status.has_ended(room))
    return tuple(sorted({node for room in made for node in room.nodes}))


def nodes_of_ended_rooms(plan: MigrationPlan) -> tuple[str, ...]:
    """Return the nodes of rooms that were made, or never will be, sorted; none of an open room."""
    nodes = {node for room in plan.spec.rooms if not room.waits for node in room.nodes}
    return tuple(sorted(nodes.difference(nodes_of_open_rooms(plan))))


def taint_nodes(client: KubeClient, nodes: Iterable[str], plan: str, key: str = DRAINING_TAINT) -> None:
    """Taint a plan's nodes to keep new pods off them.

    `key` is one of the plan's taints. Skips a node that is gone.
    """
    for node in nodes:
        value = room_taint_value(plan, node) if key == ROOM_TAINT else plan
        try:
            put_taint(client, node, key=key, value=value, type=Node)
        except (NotFoundError, UnaddressableError):
            continue
        _LOG.info(telemetry.TAINTED, **{telemetry.KEY_NODE: node, telemetry.KEY_PLAN: plan})


def untaint_nodes(client: KubeClient, nodes: Iterable[str], *keys: str) -> tuple[str, ...]:
    """Remove taints of plans; return the nodes where that failed.

    Without keys, removes all taints of plans.
    """
    failed = []
    for node in nodes:
        try:
            for key in keys or PLAN_TAINTS:
                remove_taint(client, node, key=key, type=Node)
        except NotFoundError:
            continue
        except BerthError as error:
            failed.append(node)
            _LOG.warning(telemetry.UNTAINT_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
            continue
        _LOG.info(telemetry.UNTAINTED, **{telemetry.KEY_NODE: node})
    return tuple(failed)


def left_over_nodes(client: KubeClient, plans: Collection[str]) -> tuple[str, ...]:
    """Return the nodes with a taint of any other plan, sorted."""
    nodes = client.list(NODES, type=Node).items
    return tuple(sorted(node.metadata.name for node in nodes if any(_is_left_over(t, plans) for t in node.spec.taints)))


def is_taint_of(plan: str, taint: Taint) -> bool:
    """Return whether a taint was put on for a plan."""
    if taint.key == ROOM_TAINT:
        return is_room_taint_of(plan, taint.value)
    return taint.key == DRAINING_TAINT and taint.value == plan


def _is_left_over(taint: Taint, plans: Collection[str]) -> bool:
    return taint.key in PLAN_TAINTS and not any(is_taint_of(plan, taint) for plan in plans)


# --- landing ---------------------------------------------------------------------------------------------------------
# Verifies the cluster after a plan's moves: which replacements are pending. `freeing` says which sources are free.


def is_free(pods: Iterable[Pod]) -> bool:
    """Return whether no pod occupies a node.

    DaemonSet pods, mirror pods and terminating pods do not count.
    """
    return not any(pod.occupies_node and not pod.is_terminating for pod in pods)


def count_pending(client: KubeClient, moves: Iterable[PlannedMove], since: datetime) -> int:
    """Count the pending pods of the moved pods' controllers.

    Pods created before `since` do not count.
    """
    owners = {(move.namespace, move.owner.kind, move.owner.name) for move in moves if move.owner}
    return sum(awaits_node(pod, owners, since) for pod in _pods_where(client, "spec.nodeName="))


def awaits_node(pod: Pod, owners: set[tuple[str, str, str]], since: datetime) -> bool:
    """Return whether a pending pod replaces one that the plan evicted."""
    controller = pod.controller
    if controller is None or pod.is_terminal or pod.is_terminating:
        return False
    if (pod.metadata.namespace, controller.kind, controller.name) not in owners:
        return False
    created = pod.metadata.creation_timestamp
    return created is None or parse_timestamp(created) >= since


def _pods_where(client: KubeClient, field_selector: str) -> tuple[Pod, ...]:
    return client.list(PODS, field_selector=field_selector, type=Pod).items


# --- freed nodes -----------------------------------------------------------------------------------------------------
# A plan puts a soft taint and annotations on nodes that it freed, and removes them when the nodes are needed.
#
# All facts are on the node: the mark, an annotation, says when and by which plan it was freed and which annotations
# came with that. Mark, taint and annotations come and go in one write each, so nothing is left half done.

_TRIES: Final = 8
_FEW_NODES: Final = 20
"""For at most this many nodes, pods are listed node by node."""


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
    marked = []
    for node in nodes if not freeing.carries.nothing else ():
        try:
            change_node(client, node, lambda raw: _marked(raw, freeing, format_timestamp(clock.now())))
        except NotFoundError:
            continue
        except BerthError as error:
            _LOG.warning(telemetry.MARK_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
            continue
        marked.append(node)
        _LOG.info(telemetry.MARKED, **{telemetry.KEY_NODE: node, telemetry.KEY_PLAN: freeing.plan})
    return tuple(marked)


def sweep_freed_nodes(
    client: KubeClient, read_snapshot: Callable[[], Snapshot], wanted: Wanted | None = None
) -> tuple[str, ...]:
    """Remove outdated marks of freed nodes; return the changed nodes.

    A mark goes when its node is needed, or when it is no longer wanted. A node is needed when a pod is on it, DaemonSet
    and mirror pods aside, or when a pending pod would go there. Without marks this costs one list of the nodes. The
    next sweep retries what fails.
    """
    marked = {node.metadata.name: node for node in client.list(NODES, type=Node).items if is_marked_as_freed(node)}
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


def read_mark(annotations: Mapping[str, str]) -> FreedMark | None:
    """Return the mark in a node's annotations, None without a readable one."""
    try:
        return decode_json(annotations.get(FREED_ANNOTATION, ""), FreedMark)
    except (msgspec.DecodeError, RecursionError):
        return None


def _kept(node: Node, mark: FreedMark, wanted: Wanted | None) -> FreedNodes:
    """Return what a marked node keeps."""
    tainted = any(taint.key == FREED_TAINT for taint in node.taints)
    if wanted is None:
        return FreedNodes(taint=tainted, annotations=mark.annotations)
    now = wanted(mark)
    annotations = {key: value for key, value in mark.annotations.items() if now.annotations.get(key) == value}
    return FreedNodes(taint=tainted and now.taint, annotations=annotations)


def _sweep_one(client: KubeClient, name: str, keeps: FreedNodes) -> bool:
    """Remove from a node what it does not keep.

    Returns whether anything was written.
    """
    try:
        changed = change_node(client, name, lambda raw: _stripped(raw, keeps))
    except NotFoundError:
        return False
    except BerthError as error:
        _LOG.warning(telemetry.UNMARK_FAILED, **{telemetry.KEY_NODE: name, telemetry.KEY_ERROR: str(error)})
        return False
    if changed:
        _LOG.info(telemetry.UNMARKED, **{telemetry.KEY_NODE: name})
    return changed


def _nodes_in_use(client: KubeClient, marked: Iterable[str]) -> frozenset[str]:
    pods = read_pods_on(client, frozenset(marked))
    return frozenset(pod.spec.node_name for pod in pods if not is_free((pod,)))


def read_pods_on(client: KubeClient, names: frozenset[str]) -> list[Pod]:
    """Return the pods on nodes, also those that are being deleted."""
    if len(names) <= _FEW_NODES:
        return [pod for name in sorted(names) for pod in _pods_where(client, f"spec.nodeName={name}")]
    return [pod for pod in client.list(PODS, type=Pod).items if pod.spec.node_name in names]


def _nodes_waited_for(
    client: KubeClient, marked: Iterable[str], read_snapshot: Callable[[], Snapshot]
) -> frozenset[str]:
    if not any(is_pending(pod) for pod in _pods_where(client, "spec.nodeName=")):
        return frozenset()
    return nodes_for_waiting_pods(read_snapshot(), marked)


# --- drained nodes ---------------------------------------------------------------------------------------------------
# A drain cordons nodes as `kubectl cordon` does, and takes that back only where it was its own.


def cordon_nodes(client: KubeClient, nodes: Iterable[str]) -> Iterator[str]:
    """Close nodes to new pods, and yield those that were open.

    Raises `BerthError` for the first that cannot be closed.
    """
    for node in nodes:
        if change_node(client, node, partial(_cordoned, closed=True)):
            yield node


def uncordon_nodes(client: KubeClient, nodes: Iterable[str]) -> tuple[str, ...]:
    """Open nodes again; return those where that failed.

    Skips a node that is gone.
    """
    failed = []
    for node in nodes:
        try:
            change_node(client, node, partial(_cordoned, closed=False))
        except NotFoundError:
            continue
        except BerthError as error:
            failed.append(node)
            _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
    return tuple(failed)


def _cordoned(raw: Mapping[str, Any], *, closed: bool) -> dict[str, Any] | None:
    if bool(raw["spec"].get("unschedulable")) is closed:
        return None
    return {"metadata": {}, "spec": {"unschedulable": closed or None}}


def read_pods_to_drain(client: KubeClient, nodes: Collection[str]) -> tuple[Pod, ...]:
    """Return the pods on nodes that keep these from being empty, also those that are being deleted."""
    return tuple(pod for pod in read_pods_on(client, frozenset(nodes)) if pod.occupies_node)


# --- writing ----------------------------------------------------------------------------------------------------------

RawNode = Mapping[str, Any]


def change_node(client: KubeClient, name: str, change: Callable[[RawNode], dict[str, Any] | None]) -> bool:
    """Read a node and write the change, again after a conflict.

    Returns whether anything was written.
    """
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
    """Return the patch that marks a node.

    Existing annotations of others stay theirs.
    """
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
    """Return the patch that leaves only what a node keeps.

    None if nothing changes.
    """
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
    """Return the annotations that came with the mark, by the mark itself."""
    mark = read_mark(there)
    return {} if mark is None else mark.annotations


# --- cooling nodes ---------------------------------------------------------------------------------------------------
# The mark of nodes in cool-down: other deschedulers leave nodes alone that a plan has just moved pods off or onto.
#
# All facts are on the node, so any process can remove any mark in time.

_TRUE = "true"


def mark_moved(
    client: KubeClient, clock: Clock, *, sources: Iterable[str], targets: Iterable[str], cool_down: timedelta
) -> tuple[str, ...]:
    """Record on nodes that pods were moved off or onto them.

    Returns the nodes written; failures are only logged.
    """
    left, reached = frozenset(sources), frozenset(targets)
    noted = []
    for node in sorted(left | reached):
        note = partial(_moved, now=clock.now(), cool_down=cool_down, is_source=node in left)
        try:
            if cool_down:
                change_node(client, node, note)
            else:  # the patch does not depend on what is on the node
                client.merge_patch(NODES, node, note({}))
        except BerthError as error:
            _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
            continue
        noted.append(node)
    return tuple(noted)


def sweep_cooling_nodes(client: KubeClient, clock: Clock) -> tuple[str, ...]:
    """Unmark the nodes whose cool-down is over; return them.

    The next sweep retries what fails.
    """
    changed = []
    for node in client.list(NODES, label_selector=COOLING_LABEL, type=Node).items:
        name = node.metadata.name
        try:
            if change_node(client, name, lambda raw: _rested(raw, clock.now())):
                changed.append(name)
        except NotFoundError:
            continue
        except BerthError as error:
            _LOG.warning(telemetry.UNMARK_FAILED, **{telemetry.KEY_NODE: name, telemetry.KEY_ERROR: str(error)})
    return tuple(changed)


def cooling_until(annotations: Mapping[str, str]) -> datetime | None:
    """Return the end of a node's cool-down by its annotations.

    None without a readable one.
    """
    return read_timestamp(annotations.get(COOLING_UNTIL_ANNOTATION))


def _moved(raw: Mapping[str, Any], *, now: datetime, cool_down: timedelta, is_source: bool) -> dict[str, Any]:
    """Return the patch that begins a node's cool-down.

    A cool-down that lasts longer stays.
    """
    at = format_timestamp(now)
    annotations = {LAST_MOVED_ANNOTATION: at, **({LAST_DEFRAGMENTED_ANNOTATION: at} if is_source else {})}
    if not cool_down:
        return {"metadata": {"annotations": annotations}}
    before = cooling_until(raw["metadata"].get("annotations") or {})
    annotations[COOLING_UNTIL_ANNOTATION] = format_timestamp(max(now + cool_down, before or now))
    return {"metadata": {"annotations": annotations, "labels": {COOLING_LABEL: _TRUE}}}


def _rested(raw: Mapping[str, Any], now: datetime) -> dict[str, Any] | None:
    """Return the patch that removes a node's mark.

    None during its cool-down or without a mark.
    """
    metadata = raw["metadata"]
    until = cooling_until(metadata.get("annotations") or {})
    if COOLING_LABEL not in (metadata.get("labels") or {}) or (until is not None and until > now):
        return None
    return {"metadata": {"annotations": {COOLING_UNTIL_ANNOTATION: None}, "labels": {COOLING_LABEL: None}}}
