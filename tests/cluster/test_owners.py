"""Every sort of owner gets its slot, also one that was waiting before it was held, and none is held up by one."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from berth_core import Pod
from berth_core.clock import format_timestamp, parse_timestamp
from berth_core.labels import DAEMON_POD_LABEL, RESERVATION_LABEL, SLOT_ANNOTATION
from berth_core.reservations import ReservationPhase, SlotState
from berth_kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    Resource,
)
from cluster_objects import (
    build_deployment,
    build_reservation,
    is_gone,
    label_owner,
    make_priority_class,
    overbooked_nodes,
    pod_template,
    pods,
)
from reservation_stage import WHOLE_NODE, Stage, is_gated
from service_processes import OperatorProcess
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

NOT_YET: Final = [{"name": "example.com/not-yet"}]
OTHER_GATE_OFF: Final = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
BACKOFF_SECONDS: Final = 2.1
"""After its first refusal a scheduler lets a pod rest for less than this."""
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)


def hold(stage: Stage, name: str, *owners: dict[str, Any], node: int = 0, **spec: Any) -> None:  # noqa: ANN401
    """Hold one of the two nodes for some owners, and prove it."""
    body = build_reservation(
        name,
        cpu=WHOLE_NODE,
        owners=[{"object": one} for one in owners] or label_owner(app="owner"),
        nodes=[stage.nodes[node]],
        template=stage.template(),
        **spec,
    )
    stage.client.create(RESERVATIONS, body, namespace=stage.namespace)
    stage.wait_until_proven(name)


def fill(stage: Stage, node: int, name: str = "filler") -> None:
    """Have a pod without an owner run on one of the two nodes."""
    stage.create_pod(name, app=name, nodeName=stage.nodes[node])
    eventually("the filler runs", lambda: stage.pod(name).status.phase == "Running", seconds=60)


def is_refused(stage: Stage, name: str) -> bool:
    return stage.pod(name).condition("PodScheduled") == "False"


def owner_on(stage: Stage, reservation: str = "place") -> Pod:
    """Return the pod that took the only slot of a Reservation, when it has."""
    taken = stage.wait_for(ReservationPhase.SUCCEEDED, reservation, seconds=60)
    (slot,) = taken.status.slots
    assert slot.owner is not None
    pod = stage.pod(slot.owner.name)
    assert (pod.metadata.uid, pod.spec.node_name) == (slot.owner.uid, slot.node)
    return pod


# --- kinds


def stateful_set(stage: Stage) -> tuple[Resource, dict[str, Any], dict[str, str]]:
    template = stage.template({"app": "set"})
    spec = {"serviceName": "set", "replicas": 1, "selector": {"matchLabels": {"app": "set"}}, "template": template}
    return STATEFUL_SETS, {"apiVersion": "apps/v1", "spec": spec}, {"kind": "StatefulSet"}


def replica_set(stage: Stage) -> tuple[Resource, dict[str, Any], dict[str, str]]:
    template = stage.template({"app": "set"})
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "set"}}, "template": template}
    return REPLICA_SETS, {"apiVersion": "apps/v1", "spec": spec}, {"kind": "ReplicaSet", "apiVersion": "apps/v1"}


def job(stage: Stage) -> tuple[Resource, dict[str, Any], dict[str, str]]:
    template = stage.template({"app": "job"}, restartPolicy="Never")
    return JOBS, {"apiVersion": "batch/v1", "spec": {"template": template}}, {"kind": "Job", "apiVersion": "batch/v1"}


def pod_by_name(stage: Stage) -> tuple[Resource, dict[str, Any], dict[str, str]]:
    return PODS, {"apiVersion": "v1", **stage.template({"app": "alone"})}, {"kind": "Pod"}


KINDS: Final[dict[str, Callable[[Stage], tuple[Resource, dict[str, Any], dict[str, str]]]]] = {
    "a StatefulSet": stateful_set,
    "a ReplicaSet": replica_set,
    "a Job": job,
    "a pod by its name": pod_by_name,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_pod_takes_the_slot_that_is_held_for(
    stage: Stage, kind: Callable[[Stage], tuple[Resource, dict[str, Any], dict[str, str]]]
) -> None:
    resource, body, named = kind(stage)
    hold(stage, "place", named | {"name": "it"})
    body["metadata"] = body.get("metadata", {}) | {"name": "it"}
    stage.client.create(resource, body | {"kind": resource.kind}, namespace=stage.namespace)
    try:
        assert owner_on(stage).metadata.name.startswith("it")
    finally:
        stage.client.delete(resource, "it", namespace=stage.namespace, propagation="Background")


def test_a_pod_of_a_custom_controller_takes_the_slot_that_is_held_for_its_uid(stage: Stage) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "controller"}}
    uid = stage.client.create(CONFIG_MAPS, body, namespace=stage.namespace)["metadata"]["uid"]
    hold(stage, "place", {"uid": uid})
    made = {"apiVersion": "v1", "kind": "ConfigMap", "name": "controller", "uid": uid, "controller": True}
    pod = {"apiVersion": "v1", "kind": "Pod", **stage.template()}
    pod["metadata"] |= {"name": "made", "ownerReferences": [made]}

    stage.client.create(PODS, pod, namespace=stage.namespace)

    assert owner_on(stage).metadata.name == "made"


def test_a_pod_of_the_same_name_takes_the_slot_of_a_stateful_set_s_evicted_pod(stage: Stage) -> None:
    resource, body, named = stateful_set(stage)
    body |= {"kind": resource.kind, "metadata": {"name": "it"}}
    fill(stage, 0)
    uid = stage.client.create(resource, body, namespace=stage.namespace)["metadata"]["uid"]
    try:
        eventually("the pod runs", lambda: pods(stage.client, stage.namespace, app="set") and first(stage), seconds=60)
        before = stage.pod("it-0")
        stage.client.delete(PODS, "filler", namespace=stage.namespace, grace_seconds=0)
        hold(stage, "place", named | {"name": "it", "uid": uid})

        stage.client.evict(stage.namespace, "it-0", uid=before.metadata.uid)

        after = owner_on(stage)
        assert after.metadata.name == before.metadata.name
        assert after.metadata.uid != before.metadata.uid
        assert after.spec.node_name == stage.nodes[0]
    finally:
        stage.client.delete(resource, "it", namespace=stage.namespace, propagation="Background")


def first(stage: Stage) -> bool:
    return stage.pod("it-0").status.phase == "Running"


def test_a_rollout_between_reserving_and_evicting_does_not_lose_the_place(stage: Stage) -> None:
    fill(stage, 0)
    body = build_deployment("web", replicas=1, cpu=WHOLE_NODE, nodeSelector=stage.selector)
    body["spec"]["strategy"] = {"type": "Recreate"}
    stage.client.create(DEPLOYMENTS, body, namespace=stage.namespace)
    eventually(
        "the pod runs",
        lambda: any(pod.status.phase == "Running" for pod in pods(stage.client, stage.namespace, app="web")),
        seconds=30,
    )
    (before,) = pods(stage.client, stage.namespace, app="web")
    assert before.controller is not None
    stage.client.delete(PODS, "filler", namespace=stage.namespace, grace_seconds=0)
    hold(stage, "place", {"uid": before.controller.uid}, {"kind": "Deployment", "name": "web"})

    container = {"name": "main", "image": "pause:next"}
    stage.client.merge_patch(
        DEPLOYMENTS,
        "web",
        {
            "spec": {
                "template": {"spec": {"containers": [body["spec"]["template"]["spec"]["containers"][0] | container]}}
            }
        },
        namespace=stage.namespace,
    )

    after = owner_on(stage)
    assert after.controller is not None
    assert after.controller.uid != before.controller.uid
    assert after.spec.node_name == stage.nodes[0]


# --- owners that were waiting


@pytest.mark.deep
def test_a_pod_that_was_waiting_before_its_slot_was_held_gets_it(operator: OperatorProcess, stage: Stage) -> None:
    """While no operator is there the pod is not gated, and only its slot has room for it."""
    fill(stage, 1)
    hold(stage, "place")
    operator.kill()
    for name in ("owner", "late"):
        stage.create_pod(name)
        eventually(f"{name} has no place", partial(is_refused, stage, name), seconds=60)
        time.sleep(1.1)  # creation times have whole seconds
    assert not is_gated(stage.pod("owner"))

    operator.start()

    taken = owner_on(stage)
    assert (taken.metadata.name, taken.spec.node_name) == ("owner", stage.nodes[0])
    eventually("the label is off", lambda: RESERVATION_LABEL not in stage.pod("owner").metadata.labels, seconds=60)
    assert is_refused(stage, "late")
    assert overbooked_nodes(stage.client) == []
    stage.client.delete(PODS, "late", namespace=stage.namespace, grace_seconds=0)
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)


def idle_daemon_set(stage: Stage) -> dict[str, Any]:
    """Create a DaemonSet that no node is for, and return the reference of a pod that it controls."""
    labels = {"app": "agent"}
    spec = {"selector": {"matchLabels": labels}, "template": pod_template(labels, cpu="1", nodeSelector={"no": "node"})}
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": spec}
    made = stage.client.create(DAEMON_SETS, body, namespace=stage.namespace)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "agent",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }


@pytest.mark.deep
def test_the_status_says_which_pod_took_the_place_of_the_owner(stage: Stage) -> None:
    """An urgent pod that tolerates every taint and is labelled as a DaemonSet's passes both guard and fence."""
    urgent = f"urgent-{stage.namespace}"
    make_priority_class(stage.client, urgent, 1000, preemptionPolicy="Never")
    try:
        fill(stage, 1)
        hold(stage, "place")
        labels = {"app": "thief", DAEMON_POD_LABEL: "1"}
        everything = [{"operator": "Exists"}]
        thief = stage.template(labels, priorityClassName=urgent, tolerations=everything)
        thief["metadata"] |= {"name": "thief", "ownerReferences": [idle_daemon_set(stage)]}
        stage.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **thief}, namespace=stage.namespace)
        eventually("the thief waits", lambda: is_refused(stage, "thief"), seconds=60)
        time.sleep(BACKOFF_SECONDS)  # else the scheduler may try the owner first

        stage.create_pod("owner")

        ended = stage.wait_for(ReservationPhase.FAILED, seconds=60)
        assert ended.status.state is not None
        assert ended.status.state.reason == "PlaceTaken"
        assert f"pod {stage.namespace}/thief took the place of pod {stage.namespace}/owner" in (
            ended.status.state.message
        )
        assert ended.status.slots[0].state is SlotState.LOST
        eventually("the owner is let go", lambda: is_let_go(stage.pod("owner")), seconds=60)
    finally:
        stage.client.delete(PRIORITY_CLASSES, urgent)


def is_let_go(pod: Pod) -> bool:
    return not is_gated(pod) and not pod.status.nominated_node_name


# --- owners that go away in the middle


def test_an_owner_that_is_scaled_to_zero_gives_its_slot_back(stage: Stage) -> None:
    hold(stage, "place", {"kind": "Deployment", "name": "web"})
    gated = build_deployment("web", replicas=1, cpu=WHOLE_NODE, nodeSelector=stage.selector, schedulingGates=NOT_YET)
    stage.client.create(DEPLOYMENTS, gated, namespace=stage.namespace)
    eventually(
        "its pod is gated",
        lambda: any(is_gated(pod) for pod in pods(stage.client, stage.namespace, app="web")),
        seconds=30,
    )

    stage.client.merge_patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace=stage.namespace)

    eventually("its pod is gone", lambda: not pods(stage.client, stage.namespace, app="web"), seconds=60)
    assert stage.read().status.slots[0].state is SlotState.HELD
    stage.client.delete(DEPLOYMENTS, "web", namespace=stage.namespace, propagation="Foreground")
    eventually("the owner is gone", lambda: is_gone(stage.client, DEPLOYMENTS, "web", stage.namespace), seconds=60)


def test_a_place_goes_with_the_owner_that_the_reservation_names_as_its_own(stage: Stage) -> None:
    body = build_deployment("web", replicas=0, cpu=WHOLE_NODE, nodeSelector=stage.selector)
    uid = stage.client.create(DEPLOYMENTS, body, namespace=stage.namespace)["metadata"]["uid"]
    hold(stage, "place", {"kind": "Deployment", "name": "web"})
    belongs = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid}
    stage.client.merge_patch(
        RESERVATIONS, "place", {"metadata": {"ownerReferences": [belongs]}}, namespace=stage.namespace
    )

    stage.client.delete(DEPLOYMENTS, "web", namespace=stage.namespace, propagation="Background")

    stage.wait_until_empty(seconds=60)
    eventually("it is gone", lambda: is_gone(stage.client, RESERVATIONS, "place", stage.namespace), seconds=60)


@pytest.mark.deep
def test_nothing_is_left_of_a_namespace_that_is_deleted_in_the_middle(stage: Stage) -> None:
    stage.reserve(replicas=2)
    stage.wait_until_proven()
    stage.create_pod("begun")
    stage.create_pod("gated", schedulingGates=NOT_YET)

    stage.client.delete(NAMESPACES, stage.namespace)

    stage.wait_until_empty(seconds=60)
    eventually("the namespace is gone", lambda: is_gone(stage.client, NAMESPACES, stage.namespace), seconds=120)
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)


# --- several Reservations


def test_a_pod_whose_template_differs_is_told_what_differs(stage: Stage) -> None:
    hold(stage, "place")
    stage.create_pod("odd", cpu="1m", tolerations=[{"key": "example.com/odd", "operator": "Exists"}])

    def told() -> list[str]:
        found = stage.client.list(EVENTS, namespace=stage.namespace, field_selector="involvedObject.name=odd").items
        return [event["message"] for event in found if event["reason"] == "TemplateDiffers"]

    eventually("it is told", told, seconds=60)
    (message,) = told()
    assert message.startswith("the Reservation place is for this pod, but its template does not fit (SpecNotMatch): ")
    assert "tolerations are not the template's" in message
    assert not is_gated(stage.pod("odd"))
    stage.client.delete(PODS, "odd", namespace=stage.namespace, grace_seconds=0)


def test_two_reservations_of_one_owner_serve_two_of_its_pods(stage: Stage) -> None:
    for number, name in enumerate(("one", "two")):
        hold(stage, name, node=number)

    for name in ("a", "b", "c"):
        stage.create_pod(name)

    assert {owner_on(stage, name).spec.node_name for name in ("one", "two")} == set(stage.nodes)
    left = [name for name in ("a", "b", "c") if not stage.pod(name).spec.node_name]
    assert len(left) == 1
    assert not is_gated(stage.pod(left[0]))
    stage.client.delete(PODS, left[0], namespace=stage.namespace, grace_seconds=0)


def test_a_gated_pod_whose_reservation_goes_is_sent_to_the_other_one(stage: Stage) -> None:
    hold(stage, "one")
    time.sleep(1.1)  # creation times have whole seconds
    hold(stage, "two", node=1)
    stage.create_pod("owner", schedulingGates=NOT_YET)
    assert stage.pod("owner").metadata.labels[RESERVATION_LABEL] == stage.read("one").metadata.uid

    stage.client.delete(RESERVATIONS, "one", namespace=stage.namespace)

    other = stage.read("two").metadata.uid
    eventually(
        "it belongs to the other",
        lambda: stage.pod("owner").metadata.labels.get(RESERVATION_LABEL) == other,
        seconds=12,
    )
    assert is_gated(stage.pod("owner"))
    stage.client.json_patch(PODS, "owner", OTHER_GATE_OFF, namespace=stage.namespace)
    assert owner_on(stage, "two").spec.node_name == stage.nodes[1]


# --- the end in the middle


def test_a_pod_that_has_begun_to_take_its_slot_keeps_it_when_the_reservation_expires(stage: Stage) -> None:
    stage.reserve(replicas=2, ttl=None, expires="2100-01-01T00:00:00Z")
    held = stage.wait_until_proven()
    stage.create_pod("owner")
    eventually("it has its slot", lambda: SLOT_ANNOTATION in stage.pod("owner").metadata.annotations, seconds=60)

    over = {"spec": {"expires": held.metadata.creation_timestamp}}
    stage.client.merge_patch(RESERVATIONS, "place", over, namespace=stage.namespace)

    ended = stage.wait_for(ReservationPhase.FAILED)
    assert ended.status.state is not None
    assert ended.status.state.reason == "Expired"
    eventually("the pod took its slot", lambda: stage.read().status.succeeded == 1, seconds=60)
    states = {slot.state: slot for slot in stage.read().status.slots}
    assert set(states) == {SlotState.TAKEN, SlotState.RELEASED}
    assert stage.pod("owner").spec.node_name == states[SlotState.TAKEN].node
    stage.wait_until_empty()
    assert format_timestamp(parse_timestamp(held.metadata.creation_timestamp or "")) == stage.read().status.expires_at
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)
