"""A Reservation holds places, hands them over, and lets go of everything in the end, on a real control plane."""

import subprocess
import threading
import time
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import pytest

from berth_core.clock import format_timestamp, parse_timestamp
from berth_core.labels import HANDOVER_TAINT, RESERVATION_LABEL
from berth_core.names import DEFAULT_NAMESPACE, WEBHOOK_CONFIGURATION
from berth_core.reservations import ConditionType, Reservation, ReservationPhase, SlotState
from berth_kube.client import KubeClient
from berth_kube.errors import KubeError
from berth_kube.resources import JOBS, MUTATING_WEBHOOKS, NODES, PODS, PRIORITY_CLASSES, RESERVATIONS
from berth_sandbox.binaries import find_kubectl
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_priority_class, overbooked_nodes, pods
from reservation_stage import Stage, is_gated
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

JOB_LABEL: Final = "volcano.sh/reservation-job"
LIFE: Final = timedelta(minutes=10)
"""A lifetime in which a place is surely found."""


def two_tasks(scheduler: str) -> dict[str, Any]:
    """The Reservation of two tasks that people begin with."""

    def task(name: str, replicas: int, **requests: str) -> dict[str, Any]:
        container = {
            "name": name,
            "image": f"{name}:latest",
            "command": ["sleep", "300"],
            "resources": {"requests": requests},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        return {"name": name, "replicas": replicas, "template": template}

    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "complex-reservation"},
        "spec": {
            "schedulerName": scheduler,
            "queue": "default",
            "minAvailable": 3,
            "ttl": "600s",
            "owners": [{"labelSelector": {"matchLabels": {JOB_LABEL: "job-multi"}}}],
            "tasks": [task("nginx", 2, cpu="500m", memory="500Mi"), task("busybox", 1, cpu="250m", memory="256Mi")],
        },
    }


def job_of(task: dict[str, Any], scheduler: str) -> dict[str, Any]:
    """A Job whose pods are those of a task."""
    spec = task["template"]["spec"] | {"schedulerName": scheduler}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": task["name"]},
        "spec": {
            "parallelism": task["replicas"],
            "completions": task["replicas"],
            "template": {"metadata": {"labels": {JOB_LABEL: "job-multi"}}, "spec": spec},
        },
    }


def test_without_its_scheduler_a_reservation_stays_pending_and_says_so(stage: Stage) -> None:
    stage.client.create(RESERVATIONS, two_tasks("volcano"), namespace=stage.namespace)

    def told() -> bool:
        state = stage.read("complex-reservation").status.state
        return state is not None and state.reason == "AwaitingScheduler"

    eventually("the Reservation says what it waits for", told, seconds=60)
    status = stage.read("complex-reservation").status
    assert status.state is not None
    assert status.state.phase is ReservationPhase.PENDING
    assert 'no scheduler named "volcano"' in status.state.message
    assert (status.pending, status.available, status.desired, status.node) == (3, 0, 3, "")


def test_pods_of_a_job_take_the_slots_of_both_tasks(stage: Stage) -> None:
    body = two_tasks("default-scheduler")
    stage.client.create(RESERVATIONS, body, namespace=stage.namespace)
    held = stage.wait_until_proven("complex-reservation")
    everything = {"cpu": "1250m", "memory": "1256Mi"}
    assert (held.status.allocatable, held.status.held, held.status.allocated) == (everything, everything, {})

    for task in body["spec"]["tasks"]:
        stage.client.create(JOBS, job_of(task, "default-scheduler"), namespace=stage.namespace)

    taken = stage.wait_for(ReservationPhase.SUCCEEDED, "complex-reservation")
    owners = {pod.metadata.name: pod.spec.node_name for pod in pods(stage.client, stage.namespace)}
    assert {(slot.task, slot.state) for slot in taken.status.slots} == {
        ("nginx", SlotState.TAKEN),
        ("busybox", SlotState.TAKEN),
    }
    assert {slot.owner.name: slot.node for slot in taken.status.slots if slot.owner} == owners
    assert {slot.node for slot in held.status.slots} == {slot.node for slot in taken.status.slots}
    assert (taken.status.succeeded, taken.status.available) == (3, 0)
    assert (taken.status.allocatable, taken.status.held, taken.status.allocated) == (everything, {}, everything)
    stage.wait_until_empty("complex-reservation")
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)


@pytest.mark.deep
def test_what_is_held_ends_with_the_lifetime(stage: Stage) -> None:
    small = stage.template(cpu="1")
    stage.reserve("by-length", template=small, ttl=f"{LIFE.total_seconds():g}s")
    stage.reserve("by-time", template=small, ttl=None, expires=format_timestamp(datetime.now(UTC) + LIFE))
    stage.reserve("for-ever", template=small, ttl="0s")
    for name in ("by-length", "by-time", "for-ever"):
        stage.wait_for(ReservationPhase.AVAILABLE, name)
    limits = {name: stage.placeholders(name)[0] for name in ("by-length", "by-time", "for-ever")}
    raw = {
        name: stage.client.get(PODS, pod.metadata.name, namespace=DEFAULT_NAMESPACE)["spec"]
        for name, pod in limits.items()
    }

    created = parse_timestamp(stage.read("by-length").metadata.creation_timestamp or "")
    soon = datetime.now(UTC) + timedelta(seconds=2)
    ends = {
        "by-length": {"ttl": f"{(soon - created).total_seconds():.0f}s"},
        "by-time": {"expires": format_timestamp(soon)},
    }
    for name, end in ends.items():
        stage.client.merge_patch(RESERVATIONS, name, {"spec": end}, namespace=stage.namespace)
    for name in ends:
        ended = stage.wait_for(ReservationPhase.FAILED, name)
        assert ended.status.state is not None
        assert ended.status.state.reason == "Expired"
        assert ended.status.slots[0].state is SlotState.RELEASED
        stage.wait_until_empty(name)
        assert 1 <= raw[name]["activeDeadlineSeconds"] <= LIFE.total_seconds() + 60
    assert "activeDeadlineSeconds" not in raw["for-ever"]
    endless = stage.read("for-ever")
    assert (endless.phase, endless.status.expires_at) == (ReservationPhase.AVAILABLE, None)


def test_deleting_a_reservation_releases_its_place_and_its_pods(stage: Stage) -> None:
    stage.reserve()
    stage.wait_until_proven()
    stage.create_pod("waiting", schedulingGates=[{"name": "example.com/not-yet"}])
    assert is_gated(stage.pod("waiting"))

    stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)

    stage.wait_until_empty()
    eventually("the gate is off", lambda: not is_gated(stage.pod("waiting")), seconds=60)
    released = stage.pod("waiting")
    assert [gate.name for gate in released.spec.scheduling_gates] == ["example.com/not-yet"]
    assert RESERVATION_LABEL not in released.metadata.labels


def test_a_pod_with_the_gate_of_another_takes_its_slot_when_that_gate_is_off(stage: Stage) -> None:
    stage.reserve()
    node = stage.wait_until_proven().status.node
    stage.create_pod("owner", schedulingGates=[{"name": "example.com/not-yet"}])
    time.sleep(1)
    assert stage.read().status.slots[0].state is SlotState.HELD

    off = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    stage.client.json_patch(PODS, "owner", off, namespace=stage.namespace)

    taken = stage.wait_for(ReservationPhase.SUCCEEDED)
    assert (taken.status.node, stage.pod("owner").spec.node_name) == (node, node)


def test_enough_slots_make_a_reservation_available(stage: Stage) -> None:
    stage.reserve(replicas=3, minAvailable=2)

    held = stage.wait_until_proven()

    assert (held.status.available, held.status.pending, held.status.desired) == (2, 1, 3)
    assert held.status.node == "2 nodes"
    assert held.condition(ConditionType.AVAILABLE)


REFUSED: Final = {
    "a container without an image": ({"containers": [{"name": "app"}]}, "image"),
    "an environment variable without a name": (
        {"containers": [{"name": "app", "image": "pause", "env": [{"name": ""}]}]},
        "env[0].name",
    ),
    "a port that is none": (
        {"containers": [{"name": "app", "image": "pause", "ports": [{"containerPort": 123456}]}]},
        "containerPort",
    ),
    "requests by another name": (
        {"containers": [{"name": "app", "image": "pause", "resources": {"request": {"cpu": "8"}}}]},
        "spec.tasks[0].template.spec.containers[].resources.requests of task main name no amount",
    ),
    "a field that no port has": (
        {"containers": [{"name": "app", "image": "pause", "ports": [{"containerPort": 80, "post": 80}]}]},
        "unknown field template.spec.containers[0].ports[0].post: ",
    ),
    "a request above its limit": (
        {
            "containers": [
                {"name": "app", "image": "pause", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
            ]
        },
        "limit",
    ),
    "tolerations that are no list": (
        {"containers": [{"name": "app", "image": "pause"}], "tolerations": "all"},
        "tolerations",
    ),
    "a priority class that does not exist": (
        {"containers": [{"name": "app", "image": "pause"}], "priorityClassName": "no-such-class"},
        'no PriorityClass is named "no-such-class"',
    ),
}


@pytest.mark.parametrize(("spec", "want_words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_template_that_no_pod_could_have_is_invalid(stage: Stage, spec: dict[str, Any], want_words: str) -> None:
    stage.reserve(template={"spec": spec})

    def state() -> dict[str, str]:
        """The template may be one that cannot be decoded."""
        body = stage.client.get(RESERVATIONS, "place", namespace=stage.namespace)
        found: dict[str, str] = body.get("status", {}).get("state", {"phase": "none"})
        return found

    eventually("the Reservation is over", lambda: state()["phase"] == "Failed", seconds=60)
    assert state()["reason"] == "Invalid"
    assert want_words in state()["message"]
    assert stage.placeholders() == ()


def test_a_placeholder_that_somebody_deletes_is_made_again(stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    (before,) = stage.placeholders()

    stage.client.delete(PODS, before.metadata.name, namespace=DEFAULT_NAMESPACE)

    def is_new() -> bool:
        return [pod.metadata.uid for pod in stage.placeholders()] not in ([], [before.metadata.uid])

    eventually("there is a new placeholder", is_new, seconds=60)
    assert stage.wait_for(ReservationPhase.AVAILABLE).status.node == stage.nodes[0]


def test_a_pod_of_higher_priority_ends_the_reservation(stage: Stage) -> None:
    urgent = f"urgent-{stage.namespace}"
    make_priority_class(stage.client, urgent, 1000)
    try:
        stage.reserve(replicas=2)
        stage.wait_for(ReservationPhase.AVAILABLE)

        stage.create_pod("urgent", app="urgent", priorityClassName=urgent)

        ended = stage.wait_for(ReservationPhase.FAILED)
        assert ended.status.state is not None
        assert ended.status.state.reason == "Preempted"
        assert sorted(slot.state for slot in ended.status.slots) == [SlotState.LOST, SlotState.RELEASED]
        stage.wait_until_empty()
        eventually("the urgent pod runs", lambda: stage.pod("urgent").status.phase == "Running", seconds=60)
    finally:
        stage.client.delete(PRIORITY_CLASSES, urgent)


def test_a_reservation_fails_with_its_node(stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_for(ReservationPhase.AVAILABLE)

    stage.client.delete(NODES, stage.nodes[0])

    ended = stage.wait_for(ReservationPhase.FAILED)
    assert ended.status.state is not None
    assert ended.status.state.reason == "NodeLost"
    assert stage.nodes[0] in ended.status.state.message
    stage.wait_until_empty()


def test_the_owner_may_go_in_the_middle_of_a_hand_over(stage: Stage, sandbox: Sandbox) -> None:
    """The scheduler stands still, so that the hand-over does not come to its end before the owner goes."""
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()

    def is_guarded() -> bool:
        return any(taint.key == HANDOVER_TAINT for taint in stage.node(stage.nodes[0]).spec.taints)

    sandbox.suspend("kube-scheduler")
    try:
        stage.create_pod("first")
        eventually("the node is guarded", is_guarded, seconds=60)
        stage.client.delete(PODS, "first", namespace=stage.namespace, grace_seconds=0)
        eventually("the guard is off", lambda: not is_guarded(), seconds=60)
    finally:
        sandbox.resume("kube-scheduler")
    stage.wait_for(ReservationPhase.AVAILABLE)
    eventually("the slot is held again", lambda: stage.read().status.available == 1, seconds=60)
    eventually("the path is proven", lambda: stage.read().status.slots[0].state is SlotState.HELD, seconds=60)
    stage.create_pod("second")
    taken = stage.wait_for(ReservationPhase.SUCCEEDED)
    assert taken.status.current_owner is not None
    assert (taken.status.current_owner.name, taken.status.node) == ("second", stage.nodes[0])
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)


TERMS: Final = [
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
]
"""What the admissions enforcer of AKS adds to each webhook's selector of namespaces."""


class Enforcer:
    """Adds its terms to the registration whenever they are missing there, as a controller in a thread of its own."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._thread = threading.Thread(target=self._run, name="enforcer")
        self._over = threading.Event()
        self.has_added = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._sandbox.connect() as client:
            while not self._over.wait(0.05):
                with suppress(KubeError):  # gone, written by the operator meanwhile, or late: it looks again
                    self._enforce(client)

    def _enforce(self, client: KubeClient) -> None:
        found = client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)
        selected = [webhook["namespaceSelector"]["matchExpressions"] for webhook in found["webhooks"]]
        if all(term in terms for terms in selected for term in TERMS):
            return
        for terms in selected:
            terms += [term for term in TERMS if term not in terms]
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        client.merge_patch(
            MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION, {"metadata": version, "webhooks": found["webhooks"]}
        )
        self.has_added.set()


def test_places_change_hands_while_another_controller_adds_terms_to_the_registration(
    sandbox: Sandbox, stage: Stage
) -> None:
    with Enforcer(sandbox) as enforcer:
        stage.reserve(nodes=[stage.nodes[0]])
        stage.wait_until_proven()
        assert enforcer.has_added.wait(120)
        stage.create_pod("owner")
        taken = stage.wait_for(ReservationPhase.SUCCEEDED)
    assert taken.status.node == stage.nodes[0]


def test_pods_beyond_the_slots_are_scheduled_as_ever(stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()

    for name in ("one", "two", "three"):
        stage.create_pod(name)

    stage.wait_for(ReservationPhase.SUCCEEDED)
    eventually("both nodes are taken", lambda: places(stage) == ["", *sorted(stage.nodes)], seconds=60)
    eventually("no gate is left", lambda: not any(map(is_gated, pods(stage.client, stage.namespace))), seconds=60)
    assert overbooked_nodes(stage.client) == []


def places(stage: Stage) -> list[str]:
    """Return the nodes of the pods in the stage's namespace, "" for each that has none."""
    return sorted(pod.spec.node_name for pod in pods(stage.client, stage.namespace))


def test_finished_reservations_are_collected_and_nothing_is_left_in_the_cluster(
    operator: OperatorProcess, stage: Stage, sandbox: Sandbox, tmp_path: Path
) -> None:
    operator.stop()
    try:
        with running_operator(sandbox, tmp_path, "--retention", "1", "--sweep-seconds", "1"):
            stage.reserve()
            stage.wait_until_proven()
            assert not is_gone(stage.client, MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)
            stage.create_pod("owner")
            eventually(
                "the finished Reservation is gone",
                lambda: is_gone(stage.client, RESERVATIONS, "place", stage.namespace),
                seconds=60,
            )
            assert stage.pod("owner").status.phase == "Running"
            eventually(
                "the webhook is gone",
                lambda: is_gone(stage.client, MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION),
                seconds=20,
            )
            assert not stage.placeholders()
    finally:
        operator.start()


def test_the_operator_answers_probes_and_scrapes(operator: OperatorProcess, stage: Stage) -> None:
    stage.reserve()
    stage.wait_until_proven()

    assert '"healthy": true' in fetch(operator, "healthz")
    assert '"leading": true' in fetch(operator, "readyz")
    for series in (
        'berth_reservation_phase_changes_total{phase="Available"',
        'berth_operator_actions_total{action="CreatePlaceholder"}',
        "berth_operator_leading 1.0",
    ):
        eventually(f"{series} is told", partial(is_told, operator, series), seconds=60)


def is_told(operator: OperatorProcess, series: str) -> bool:
    return series in fetch(operator, "metrics")


def fetch(operator: OperatorProcess, path: str) -> str:
    url = f"http://127.0.0.1:{operator.health_port}/{path}"
    with urllib.request.urlopen(url, timeout=120) as answer:
        return str(answer.read().decode())


def test_kubectl_shows_people_where_things_stand(stage: Stage, sandbox: Sandbox) -> None:
    def kubectl(*arguments: str) -> str:
        command = [str(find_kubectl(print)), "--kubeconfig", str(sandbox.kubeconfig), "-n", stage.namespace, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout

    stage.reserve(nodes=[stage.nodes[0]])
    stage.reserve("hungry", template=stage.template(cpu="64"))
    stage.wait_until_proven()
    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED)
    eventually("the other is told why", lambda: reason(stage.read("hungry")) == "UnschedulableYet", seconds=60)

    rows = [line.split() for line in kubectl("get", "reservations").splitlines()]
    assert rows[0] == ["NAME", "PHASE", "NODE", "AVAILABLE", "TAKEN", "DESIRED", "OWNER", "EXPIRES", "AGE"]
    assert ["place", "Succeeded", stage.nodes[0], "0", "1", "1", "owner"] in [row[:7] for row in rows]
    assert ["hungry", "Pending", "0", "0", "1"] in [row[:5] for row in rows]
    wide = kubectl("get", "rsv", "-o", "wide").splitlines()
    assert wide[0].split()[-1] == "REASON"
    assert {line.split()[-1] for line in wide[1:]} == {"OwnersRunning", "UnschedulableYet"}
    told = kubectl("describe", "reservation", "hungry")
    assert "Insufficient cpu" in told
    assert kubectl("wait", "--for=condition=Succeeded", "reservation/place", "--timeout=120s")


def reason(reservation: Reservation) -> str:
    return reservation.status.state.reason if reservation.status.state else ""
