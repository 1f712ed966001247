"""The table of all patches of objects that others write, too, and the other writer that comes in between."""
# ruff: noqa: ANN401 - each act is one call of a program's own; a raw object is anything

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import msgspec

import berth_descheduler
import berth_kube
import berth_operator
from berth_core import Node, Pod
from berth_core.labels import (
    BEST_EFFORT_LABEL,
    COOLING_LABEL,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_LABEL,
    HANDOVER_TAINT,
    LAST_DEFRAGMENTED_ANNOTATION,
    QUEUE_GATE,
    RELEASED_ANNOTATION,
    RELEASED_HASH,
    RESERVATION_LABEL,
    RESERVEABLE_ANNOTATION,
    SLOT_ANNOTATION,
    TEMPLATE_HASH_LABEL,
)
from berth_core.reservations import SlotState
from berth_descheduler.capabilities.drain.cli import nodes as drained_nodes
from berth_descheduler.migration.nodes import cooling_marks, freed_marks, plan_taints
from berth_descheduler.migration.operator import cleanup
from berth_descheduler.settings import FreedNodes
from berth_descheduler.uninstall.leftovers import build_node_patch, build_pod_patch, marks_of_node, marks_of_pod
from berth_descheduler.uninstall.removal import Removal, Settings
from berth_kube import surge
from berth_kube.client import KubeClient
from berth_kube.errors import ConflictError
from berth_kube.resources import NODES, PODS, Resource
from berth_operator.capabilities.queues.act import Queues
from berth_operator.capabilities.queues.store import read_queue_pod
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.act.executor import ActionExecutor
from berth_operator.reservation.act.fences import FenceManager, label_oldest
from berth_operator.reservation.act.guards import NodeGuard
from berth_operator.reservation.act.pending_owners import PendingOwners
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    CompleteHandover,
    ExtendHandover,
    Nominate,
    Release,
    ShortenPlaceholder,
    Ungate,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock
from capability_kernels import build_kernel
from handover_builders import PLACE_UID, place, slot

Raw = dict[str, Any]

THEIRS: Final = "example.com/theirs"
THEIR_HASH: Final = "5d4f8c7b9"
THEIR_GATE: Final = "example.com/wait"
OTHER_UID: Final = "uid-default-another"
NODE: Final = "foreign-node"
GIVEN: Final = Assignment("web", 0, NODE, int((NOON + timedelta(seconds=30)).timestamp()))
LATER: Final = Assignment("web", 0, NODE, int((NOON + timedelta(seconds=90)).timestamp()))
_INTERRUPTIONS: Final = 3


# --- what is patched


def pod_body(*, labelled: bool = True, gated: bool = True, noted: bool = False) -> Raw:
    """Return a pod that waits behind another's gate; without a note it has no annotations at all.

    One that is not gated by us selects a node that is not there: a scheduler would bind it as soon as the other writer
    has taken that gate off.
    """
    metadata: Raw = {"name": "web-0", "labels": {RESERVATION_LABEL: PLACE_UID, "app": "web"} if labelled else None}
    if noted:
        metadata["labels"] |= {HANDOVER_LABEL: "true"}
        metadata["annotations"] = {SLOT_ANNOTATION: GIVEN.to_annotation()}
    gates = [{"name": THEIR_GATE}, *([{"name": HANDOVER_GATE}] if gated else [])]
    spec: Raw = {"schedulingGates": gates, "containers": [{"name": "main", "image": "pause"}]}
    if not gated:
        spec["nodeSelector"] = {THEIRS: "nowhere"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "spec": spec,
    }


def queued_body() -> Raw:
    """Return a pod that waits behind three gates, the last one of queues."""
    body = pod_body()
    body["spec"]["schedulingGates"].append({"name": QUEUE_GATE})
    return body


def released_body() -> Raw:
    """Return a pod that its ReplicaSet has let go."""
    body = pod_body()
    body["metadata"]["labels"][TEMPLATE_HASH_LABEL] = RELEASED_HASH
    body["metadata"]["annotations"] = {RELEASED_ANNOTATION: "{}"}
    return body


def node_body(*, guarded: bool = False, freed: bool = False, labels: Mapping[str, str] | None = None) -> Raw:
    keys = [*([HANDOVER_TAINT] if guarded else []), *([FREED_TAINT] if freed else [])]
    taints = [{"key": key, "value": "1", "effect": "NoSchedule"} for key in keys]
    metadata: Raw = {"name": NODE, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints} if taints else {}}


# --- the acts


def _perform(action: Callable[[Pod], Action]) -> Callable[[KubeClient, Raw], None]:
    """Return an act of the operator on the pod as it was looked at before the other writer came."""

    def act(client: KubeClient, seen: Raw) -> None:
        meta = seen["metadata"]
        pod = plain_client(client).get(PODS, meta["name"], namespace=meta["namespace"], type=Pod)
        settings = OperatorSettings()
        cache = Cache(lambda _key: None)
        cache.put_reservation(place(slot(SlotState.HELD), name="another", namespace=meta["namespace"], uid=OTHER_UID))
        has_no_part: Any = None
        executor = ActionExecutor(
            Context(client, cache, settings, FakeClock()),
            probe=has_no_part,
            priorities=has_no_part,
            pod_groups=PodGroups(client, settings.placeholders.namespace),
            validator=has_no_part,
            chooser=has_no_part,
            recorder=EventRecorder(client),
            leads=lambda: True,
        )
        executor.execute(place(), [action(pod)])

    return act


def guard_keeper(client: KubeClient) -> NodeGuard:
    context = Context(client, Cache(lambda _key: None), OperatorSettings(), FakeClock())
    return NodeGuard(context, FenceManager(context, PriorityClasses(client, ClusterRules())))


def _let_in(client: KubeClient, seen: Raw) -> None:
    label_oldest(client, [msgspec.convert(seen, Pod)], BEST_EFFORT_LABEL)


def _annotate_by_group(client: KubeClient, seen: Raw) -> None:
    context = Context(client, Cache(lambda _key: None), OperatorSettings(), FakeClock())
    PendingOwners(context, lambda _key, _seconds: None)._annotate(msgspec.convert(seen, Pod))


def _let_go_by_queue(client: KubeClient, seen: Raw) -> None:
    context = Context(client, Cache(lambda _key: None), OperatorSettings(), FakeClock())
    recorder = EventRecorder(client)
    kernel = build_kernel(context, recorder=recorder, leads=lambda: True, enqueue=lambda _key, _seconds: None)
    Queues(kernel)._ungate(read_queue_pod(msgspec.convert(seen, Pod), "berth-system"), 0)


def _guard(client: KubeClient, _seen: Raw) -> None:
    guard_keeper(client)._guard(NODE, 5)


def _unguard(client: KubeClient, _seen: Raw) -> None:
    guard_keeper(client)._unguard(NODE)


def _ungate_for_the_silent(client: KubeClient, seen: Raw) -> None:
    cleanup._ungate(client, seen)


def _unguard_for_the_silent(client: KubeClient, _seen: Raw) -> None:
    cleanup._unguard(client, NODE)


def _removal(client: KubeClient) -> Removal:
    settings = Settings(namespace="berth-system", release="berth", keep_crds=True, timeout_seconds=60)
    return Removal(client, FakeClock(), settings)


def _mark_freed(client: KubeClient, _seen: Raw) -> None:
    carries = FreedNodes(taint=True, annotations={"example.com/freed": "yes"})
    freed_marks.mark_freed(client, FakeClock(), [NODE], freed_marks.Freeing("plan", "", carries))


def _mark_moved(client: KubeClient, _seen: Raw) -> None:
    cool_down = timedelta(minutes=5)
    cooling_marks.mark_moved(client, FakeClock(), sources=[NODE], targets=[], cool_down=cool_down)


def _take_back(client: KubeClient, seen: Raw) -> None:
    """Give a released pod back; the next look of a move repeats what another writer came before."""
    meta = seen["metadata"]
    for _ in range(_INTERRUPTIONS + 1):
        raw = plain_client(client).get(PODS, meta["name"], namespace=meta["namespace"])
        with suppress(ConflictError):
            surge.relabel(client, raw, surge.build_return(raw, THEIR_HASH))
            return


def _sweep_cooling(client: KubeClient, _seen: Raw) -> None:
    cooling_marks.sweep_cooling_nodes(client, FakeClock(), client.list(NODES, type=Node).items)


# --- the table


@dataclass(frozen=True, kw_only=True)
class ForeignPatch:
    """One patch of an object that others write, too."""

    site: str
    """The function that sends it, as `module.function`."""

    builder: str = ""
    """Its function of `pod_patches`, if it has one."""

    before: Callable[[], Raw]
    act: Callable[[KubeClient, Raw], None]
    done: Callable[[Raw], bool]

    @property
    def resource(self) -> Resource:
        return PODS if self.before()["kind"] == "Pod" else NODES


def _notes(raw: Raw) -> Mapping[str, str]:
    return cast("Mapping[str, str]", raw["metadata"].get("annotations") or {})


def _labels(raw: Raw) -> Mapping[str, str]:
    return cast("Mapping[str, str]", raw["metadata"].get("labels") or {})


def gates(raw: Raw) -> list[str]:
    return [gate["name"] for gate in raw["spec"].get("schedulingGates") or ()]


def taints(raw: Raw) -> list[str]:
    return [taint["key"] for taint in raw["spec"].get("taints") or ()]


def tolerated(raw: Raw) -> list[str]:
    return [toleration.get("key", "") for toleration in raw["spec"].get("tolerations") or ()]


def _is_assigned(raw: Raw) -> bool:
    is_noted = _notes(raw).get(SLOT_ANNOTATION) == GIVEN.to_annotation()
    is_labelled = _labels(raw).get(RESERVATION_LABEL) == PLACE_UID and _labels(raw).get(HANDOVER_LABEL) == "true"
    return is_noted and is_labelled and tolerated(raw).count(HANDOVER_TAINT) == 1


_CLEARED: Final = "berth_descheduler.uninstall.removal._patch"
_PATCHED: Final = "berth_operator.reservation.act.handover_pods._patched"

FOREIGN_PATCHES: Final[dict[str, ForeignPatch]] = {
    "a gated pod is given a slot": ForeignPatch(
        site=_PATCHED,
        builder="build_assignment",
        before=pod_body,
        act=_perform(lambda pod: AssignSlot(pod, GIVEN)),
        done=_is_assigned,
    ),
    "a pod that waited is given a slot": ForeignPatch(
        site=_PATCHED,
        builder="build_assignment",
        before=lambda: pod_body(labelled=False, gated=False),
        act=_perform(lambda pod: AssignSlot(pod, GIVEN)),
        done=_is_assigned,
    ),
    "a hand-over gets more time": ForeignPatch(
        site=_PATCHED,
        builder="build_extension",
        before=lambda: pod_body(noted=True),
        act=_perform(lambda pod: ExtendHandover(pod, LATER)),
        done=lambda raw: _notes(raw).get(SLOT_ANNOTATION) == LATER.to_annotation(),
    ),
    "a gated pod is sent to another Reservation": ForeignPatch(
        site=_PATCHED,
        builder="build_move",
        before=pod_body,
        act=_perform(lambda pod: Release(pod, elsewhere=True)),
        done=lambda raw: _labels(raw).get(RESERVATION_LABEL) == OTHER_UID,
    ),
    "a placeholder is to end sooner": ForeignPatch(
        site=_PATCHED,
        builder="build_shortening",
        before=pod_body,
        act=_perform(lambda pod: ShortenPlaceholder(pod, 77)),
        done=lambda raw: raw["spec"].get("activeDeadlineSeconds") == 77,
    ),
    "the gate comes off": ForeignPatch(
        site=_PATCHED,
        builder="build_ungating",
        before=lambda: pod_body(noted=True),
        act=_perform(Ungate),
        done=lambda raw: HANDOVER_GATE not in gates(raw),
    ),
    "the gate of queues comes off": ForeignPatch(
        site="berth_operator.capabilities.queues.act._ungate",
        builder="build_queue_ungating",
        before=queued_body,
        act=_let_go_by_queue,
        done=lambda raw: QUEUE_GATE not in gates(raw) and HANDOVER_GATE in gates(raw),
    ),
    "label and note come off": ForeignPatch(
        site=_PATCHED,
        builder="build_unlabelling",
        before=lambda: pod_body(noted=True),
        act=_perform(CompleteHandover),
        done=lambda raw: not {*_notes(raw), *_labels(raw)} & {SLOT_ANNOTATION, RESERVATION_LABEL, HANDOVER_LABEL},
    ),
    "a pod is let go": ForeignPatch(
        site=_PATCHED,
        builder="build_release",
        before=lambda: pod_body(noted=True),
        act=_perform(Release),
        done=lambda raw: not {*_notes(raw), *_labels(raw), *gates(raw)} & {SLOT_ANNOTATION, HANDOVER_GATE},
    ),
    "a pod is nominated": ForeignPatch(
        site="berth_operator.reservation.act.handover_pods.nominate",
        before=lambda: pod_body(noted=True),
        act=_perform(lambda pod: Nominate(pod, NODE)),
        done=lambda raw: raw["status"].get("nominatedNodeName") == NODE,
    ),
    "a pod without requests is let past fences": ForeignPatch(
        site="berth_operator.reservation.act.fences.label_oldest",
        before=lambda: pod_body(labelled=False, gated=False),
        act=_let_in,
        done=lambda raw: _labels(raw).get(BEST_EFFORT_LABEL) == "true",
    ),
    "a pod says what its group says": ForeignPatch(
        site="berth_operator.reservation.act.pending_owners._annotate",
        before=lambda: pod_body(labelled=False, gated=False),
        act=_annotate_by_group,
        done=lambda raw: _notes(raw).get(RESERVEABLE_ANNOTATION) == "true",
    ),
    "a released pod is given back": ForeignPatch(
        site="berth_kube.surge.relabel",
        before=released_body,
        act=_take_back,
        done=lambda raw: _labels(raw)[TEMPLATE_HASH_LABEL] == THEIR_HASH and RELEASED_ANNOTATION not in _notes(raw),
    ),
    "a node is guarded": ForeignPatch(
        site="berth_operator.reservation.act.guards._guard",
        before=node_body,
        act=_guard,
        done=lambda raw: HANDOVER_TAINT in taints(raw),
    ),
    "a guard is taken off": ForeignPatch(
        site="berth_operator.reservation.act.guards._unguard",
        before=lambda: node_body(guarded=True),
        act=_unguard,
        done=lambda raw: HANDOVER_TAINT not in taints(raw),
    ),
    "a gate of a silent operator comes off": ForeignPatch(
        site="berth_descheduler.migration.operator.cleanup._ungate",
        before=lambda: pod_body(noted=True),
        act=_ungate_for_the_silent,
        done=lambda raw: HANDOVER_GATE not in gates(raw),
    ),
    "a guard of a silent operator is taken off": ForeignPatch(
        site="berth_descheduler.migration.operator.cleanup._unguard",
        before=lambda: node_body(guarded=True),
        act=_unguard_for_the_silent,
        done=lambda raw: HANDOVER_TAINT not in taints(raw),
    ),
    "a source is drained": ForeignPatch(
        site="berth_descheduler.migration.nodes.plan_taints.taint_nodes",
        before=node_body,
        act=lambda client, _seen: plan_taints.taint_nodes(client, [NODE], "plan"),
        done=lambda raw: plan_taints.DRAINING_TAINT in taints(raw),
    ),
    "a source is drained no more": ForeignPatch(
        site="berth_descheduler.migration.nodes.plan_taints.untaint_nodes",
        before=lambda: node_body(guarded=True),
        act=lambda client, _seen: cast("None", plan_taints.untaint_nodes(client, [NODE], HANDOVER_TAINT)),
        done=lambda raw: HANDOVER_TAINT not in taints(raw),
    ),
    "a freed node is marked": ForeignPatch(
        site="berth_descheduler.migration.nodes.freed_marks.mark_freed",
        before=node_body,
        act=_mark_freed,
        done=lambda raw: bool(taints(raw)) and _notes(raw).get("example.com/freed") == "yes",
    ),
    "a freed node is marked no more": ForeignPatch(
        site="berth_descheduler.migration.nodes.freed_marks._sweep_node",
        before=lambda: node_body(freed=True),
        act=lambda client, _seen: cast("None", freed_marks._sweep_node(client, NODE, FreedNodes())),
        done=lambda raw: FREED_TAINT not in taints(raw),
    ),
    "a node is cordoned": ForeignPatch(
        site="berth_descheduler.capabilities.drain.cli.nodes.cordon_nodes",
        before=node_body,
        act=lambda client, _seen: cast("None", list(drained_nodes.cordon_nodes(client, [NODE]))),
        done=lambda raw: raw["spec"].get("unschedulable") is True,
    ),
    "a node is cordoned no more": ForeignPatch(
        site="berth_descheduler.capabilities.drain.cli.nodes.uncordon_nodes",
        before=lambda: {**node_body(), "spec": {"unschedulable": True}},
        act=lambda client, _seen: cast("None", drained_nodes.uncordon_nodes(client, [NODE])),
        done=lambda raw: "unschedulable" not in raw["spec"],
    ),
    "a node that pods were moved off rests": ForeignPatch(
        site="berth_descheduler.migration.nodes.cooling_marks.mark_moved",
        before=node_body,
        act=_mark_moved,
        done=lambda raw: LAST_DEFRAGMENTED_ANNOTATION in _notes(raw) and COOLING_LABEL in _labels(raw),
    ),
    "a node has rested": ForeignPatch(
        site="berth_descheduler.migration.nodes.cooling_marks.sweep_cooling_nodes",
        before=lambda: node_body(labels={COOLING_LABEL: "true"}),
        act=_sweep_cooling,
        done=lambda raw: COOLING_LABEL not in _labels(raw),
    ),
    "a pod is cleared of marks for good": ForeignPatch(
        site=_CLEARED,
        before=lambda: pod_body(noted=True),
        act=lambda client, seen: _removal(client)._patch(PODS, seen, build_pod_patch),
        done=lambda raw: not marks_of_pod(raw),
    ),
    "a node is cleared of marks for good": ForeignPatch(
        site=_CLEARED,
        before=lambda: node_body(guarded=True, labels={COOLING_LABEL: "true"}),
        act=lambda client, seen: _removal(client)._patch(NODES, seen, build_node_patch),
        done=lambda raw: not marks_of_node(raw),
    ),
}

WITHIN: Final = frozenset(
    {
        "berth_descheduler.capabilities.demo.cli.lent_scene._lend",
        "berth_descheduler.migration.nodes.writes.change_node",
        "berth_kube.taints._change_known",
        "berth_kube.taints._change_taints",
        "berth_operator.reservation.act.context.write_status",
        "berth_operator.capabilities.zones.fences._annotate",
    }
)
"""Send the patches of others in this table, those of objects of our own, or those of a demo on its own cluster."""

OF_OUR_OWN: Final = frozenset(
    {
        *("DESCHEDULER_POLICIES", "EVENTS", "LEASES", "MIGRATION_PLANS", "MUTATING_WEBHOOKS", "RESERVATIONS"),
        "VALIDATING_WEBHOOKS",
        *("POD_GROUPS", "QUEUES", "RESERVATION_WINDOWS", "REVOCABLE_ZONES", "SECRETS"),
    }
)
"""Kinds whose objects, as far as we patch them, one of our programs alone writes, or only as they were read."""

_PATCHES: Final = frozenset({"json_patch", "merge_patch"})
_OF_NODES: Final = frozenset({"change_node", "put_taint", "remove_taint"})


def senders() -> Iterator[str]:
    """Yield every function of the programs that patches foreign objects, as `module.function`, from their source."""
    for package in (berth_operator, berth_descheduler, berth_kube):
        root = Path(cast("str", package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            module = ".".join((package.__name__, *path.relative_to(root).with_suffix("").parts))
            text = path.read_text(encoding="utf-8")
            if not any(name in text for name in (*_OF_NODES, *_PATCHES)):
                continue  # to parse all takes seconds
            for function in ast.walk(ast.parse(text)):
                if isinstance(function, ast.FunctionDef) and any(map(_sends, ast.walk(function))):
                    yield f"{module}.{function.name}"


def _sends(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    kind = getattr(node.args[0], "id", "") if node.args else ""
    return name in _OF_NODES or (name in _PATCHES and kind not in OF_OUR_OWN)


# --- the other writer


def plain_client(client: KubeClient) -> KubeClient:
    """Return the client below another writer."""
    return cast("KubeClient", getattr(client, "below", client))


class BesideAnotherWriter:
    """A client before whose patches of one object another writer changes that, the first few times."""

    def __init__(self, below: KubeClient, resource: Resource) -> None:
        self.below = below
        self._resource = resource
        self.interruptions = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def json_patch(self, resource: Resource, name: str, operations: Any, **rest: Any) -> Any:
        self._interrupt(resource, name, rest.get("namespace"))
        return self.below.json_patch(resource, name, operations, **rest)

    def merge_patch(self, resource: Resource, name: str, body: Any, **rest: Any) -> Any:
        self._interrupt(resource, name, rest.get("namespace"))
        return self.below.merge_patch(resource, name, body, **rest)

    def _interrupt(self, resource: Resource, name: str, namespace: str | None) -> None:
        if resource is not self._resource or self.interruptions == _INTERRUPTIONS:
            return
        self.interruptions += 1
        key = f"{THEIRS}-{self.interruptions}"
        notes = {"metadata": {"annotations": {key: "x"}, "labels": {key: "x"}}}
        self.below.merge_patch(resource, name, notes, namespace=namespace)
        found = self.below.get(resource, name, namespace=namespace)
        if resource is PODS:
            change_pod(self.below, found, key)
        else:
            added = [*(found["spec"].get("taints") or []), {"key": key, "value": "", "effect": "PreferNoSchedule"}]
            self.below.merge_patch(resource, name, {"spec": {"taints": added}})


def change_pod(client: KubeClient, found: Raw, key: str) -> None:
    """Add a toleration to a pod, and take the other writer's gate off."""
    toleration = {"key": key, "operator": "Exists"}
    held = found["spec"].get("tolerations")
    operations: list[Raw] = [
        {"op": "add", "path": "/spec/tolerations/-", "value": toleration}
        if held
        else {"op": "add", "path": "/spec/tolerations", "value": [toleration]}
    ]
    if THEIR_GATE in gates(found):
        operations.append({"op": "remove", "path": f"/spec/schedulingGates/{gates(found).index(THEIR_GATE)}"})
    meta = found["metadata"]
    client.json_patch(PODS, meta["name"], operations, namespace=meta["namespace"])


def lost(raw: Raw, interruptions: int) -> list[str]:
    """Return what another writer wrote and is not there any more."""
    keys = [f"{THEIRS}-{number + 1}" for number in range(interruptions)]
    missing = [f"annotation {key}" for key in keys if key not in _notes(raw)]
    missing += [f"label {key}" for key in keys if key not in _labels(raw)]
    listed = tolerated(raw) if raw["kind"] == "Pod" else taints(raw)
    missing += [f"entry {key}" for key in keys if key not in listed]
    return missing + [f"gate {THEIR_GATE} is back" for gate in gates(raw) if gate == THEIR_GATE]
