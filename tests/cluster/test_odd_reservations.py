"""Whatever the API server takes as a Reservation ends in a phase with a reason, and leaves the operator at rest.

More examples are drawn with `BERTH_ODD_RESERVATIONS=500`; by default there are few, always the same.
"""
# ruff: noqa: ANN401 - fields of odd objects are anything

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from berth_core import Pod
from berth_core.clock import SystemClock
from berth_core.labels import SLOT_ANNOTATION
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import Reservation, ReservationPhase
from berth_core.snapshot import Snapshot
from berth_descheduler.controller.status_controller import StatusController
from berth_descheduler.controller.store import PolicyStore, ServiceContext, WakeUp
from berth_descheduler.picture import Picture
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.parsing import RunDefaults
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_descheduler.snapshots import dump_cluster, read_live_snapshot
from berth_kube.client import KubeClient
from berth_kube.errors import Call, InvalidObjectError, KubeError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, RESERVATIONS, Resource
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from builders import DEEP, nested_json
from cluster_objects import build_reservation, label_owner, make_namespace, pod_template
from reservation_stage import delete_all, delete_if_there
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NAMESPACE = "odd"
NEIGHBOUR = "odd-neighbour"
NODE = "odd-node-000"
MOST_SLOTS = 50
BATCH = 12
REST_SECONDS = 4.0
EXAMPLES = int(os.environ.get("BERTH_ODD_RESERVATIONS", "36"))


@dataclass(frozen=True)
class Room:
    client: KubeClient
    operator: OperatorProcess

    def metric(self, name: str) -> float:
        url = f"http://127.0.0.1:{self.operator.health_port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def room(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Yield one small node, a namespace, and an operator that grants 50 slots."""
    folder = tmp_path_factory.mktemp("odd")
    with sandbox.connect() as client:
        make_namespace(client, NAMESPACE)
        sandbox.add_nodes(1, NodeShape(cpu="4", memory="16Gi"), prefix="odd-node-")
        with running_operator(sandbox, folder, f"--limit=slots={MOST_SLOTS},share=none") as operator:
            yield Room(client, operator)
            clear(client)
        delete_if_there(client, NODES, NODE)


def clear(client: KubeClient) -> None:
    delete_all(client, RESERVATIONS, NAMESPACE)
    eventually("no Reservation is left", lambda: not readable(client), seconds=60)
    eventually("no placeholder is left", lambda: not placeholders(client), seconds=60)


def placeholders(client: KubeClient) -> list[Pod]:
    return [pod for pod in client.list(PODS, namespace=DEFAULT_NAMESPACE, type=Pod).items if not pod.is_terminating]


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "pause"}], **spec}}


def asking(**requests: Any) -> dict[str, Any]:
    return template(containers=[{"name": "main", "image": "pause", "resources": {"requests": requests}}])


def spec_of(*tasks: dict[str, Any], **rest: Any) -> dict[str, Any]:
    filled = [
        {"name": f"task-{index}", "replicas": 1, "requestsNothing": not _names_requests(task["template"]), **task}
        for index, task in enumerate(tasks)
    ]
    return {"tasks": filled, "owners": label_owner(app="odd"), "ttl": "10m", **rest}


def _names_requests(odd: dict[str, Any]) -> bool:
    return "requests" in json.dumps(odd)


def create(client: KubeClient, name: str, spec: dict[str, Any]) -> bool:
    """Create a Reservation and return whether the API server took it."""
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    try:
        client.create(RESERVATIONS, body, namespace=NAMESPACE)
    except InvalidObjectError:
        return False
    except KubeError as error:
        if error.status_code != 400:
            raise
        return False
    return True


def has_an_answer(found: Reservation) -> bool:
    state = found.status.state
    return state is not None and bool(state.reason) and bool(state.message) and state.reason != "CreatingPlaceholders"


# --- known oddities -------------------------------------------------------------------------------------------------

TYPO = {"cpu": "8"}
PENDING, FAILED, AVAILABLE = ReservationPhase.PENDING, ReservationPhase.FAILED, ReservationPhase.AVAILABLE
KNOWN: dict[str, tuple[dict[str, Any], ReservationPhase, str]] = {
    "more cpu than any machine has": (spec_of({"template": asking(cpu="1e15")}), PENDING, "UnschedulableYet"),
    "a template that requests nothing and does not say so": (
        spec_of({"template": template(), "requestsNothing": False}),
        FAILED,
        "Invalid",
    ),
    "a typo in the resources, from a client that is not strict": (
        spec_of(
            {
                "template": template(containers=[{"name": "main", "image": "a", "resources": {"request": TYPO}}]),
                "requestsNothing": False,
            }
        ),
        FAILED,
        "Invalid",
    ),
    "an unknown field of the pod's security": (
        spec_of({"template": template(securityContext={"runAsUsr": 1})}),
        FAILED,
        "Invalid",
    ),
    "an unknown field of a container's port": (
        spec_of({"template": template(containers=[{"name": "main", "image": "a", "ports": [{"port": 80}]}])}),
        FAILED,
        "Invalid",
    ),
    "a negative quantity": (spec_of({"template": asking(memory="-1Gi")}), FAILED, "Invalid"),
    "a resource without a domain": (spec_of({"template": asking(gpus="1")}), FAILED, "Invalid"),
    "half a device": (spec_of({"template": asking(**{"example.com/gpu": "500m"})}), FAILED, "Invalid"),
    "a scheduler that nobody runs": (
        spec_of({"template": template()}, schedulerName="nobody"),
        PENDING,
        "AwaitingScheduler",
    ),
    "a priority class that is not there": (
        spec_of({"template": template(priorityClassName="the-best")}),
        FAILED,
        "Invalid",
    ),
    "a critical class, without a quota for it": (
        spec_of({"template": template(priorityClassName="system-node-critical")}),
        FAILED,
        "Forbidden",
    ),
    "a priority without a class": (spec_of({"template": template(priority=2_000_000_000)}), AVAILABLE, "SlotsHeld"),
    "an image in other letters": (
        spec_of({"template": template(containers=[{"name": "main", "image": "пауза"}])}, queue="очередь ✈"),
        AVAILABLE,
        "SlotsHeld",
    ),
    "a container without an image": (spec_of({"template": template(containers=[{"name": "main"}])}), FAILED, "Invalid"),
    "containers of one name": (
        spec_of({"template": template(containers=[{"name": "main", "image": "a"}, {"name": "main", "image": "b"}])}),
        FAILED,
        "Invalid",
    ),
    "a node of a name that no node can have": (
        spec_of({"template": template(), "reservationNodeNames": ["Ŝtrange node/№1"]}),
        FAILED,
        "Invalid",
    ),
    "a node that is not there": (
        spec_of({"template": template(), "reservationNodeNames": ["nowhere"]}),
        PENDING,
        "UnschedulableYet",
    ),
    "an affinity of the wrong type": (spec_of({"template": template(affinity="close")}), FAILED, "Invalid"),
    "tolerations of everything": (
        spec_of({"template": template(tolerations=[{"operator": "Exists"}])}),
        AVAILABLE,
        "SlotsHeld",
    ),
    "a toleration of an unknown kind": (
        spec_of({"template": template(tolerations=[{"operator": "Perhaps", "key": "x"}])}),
        FAILED,
        "Invalid",
    ),
    "as many replicas as there may be": (
        spec_of({"template": asking(cpu="1m"), "replicas": 1000}),
        FAILED,
        "Forbidden",
    ),
    "a life of a nanosecond": (spec_of({"template": template()}, ttl="1ns"), FAILED, "Expired"),
    "an end long ago": (
        {**spec_of({"template": template()}), "ttl": None, "expires": "0001-01-01T00:00:00Z"},
        FAILED,
        "Expired",
    ),
    "a privileged pod": (
        spec_of(
            {
                "template": template(
                    hostNetwork=True,
                    hostPID=True,
                    serviceAccountName="cluster-admin",
                    containers=[{"name": "main", "image": "pause", "securityContext": {"privileged": True}}],
                    volumes=[{"name": "root", "hostPath": {"path": "/"}}],
                )
            }
        ),
        AVAILABLE,
        "SlotsHeld",
    ),
}


WORDS = {
    "a template that requests nothing and does not say so": "write what the pods request",
    "a typo in the resources, from a client that is not strict": "write what the pods request",
    "an unknown field of the pod's security": "task task-0: unknown field template.spec.securityContext.runAsUsr: ",
    "an unknown field of a container's port": "task task-0: unknown field template.spec.containers[0].ports[0].port: ",
}


def test_known_oddities_end_as_they_should(room: Room) -> None:
    for number, (spec, _, _) in enumerate(KNOWN.values()):
        assert create(room.client, f"known-{number}", spec), list(KNOWN)[number]

    def wrong() -> dict[str, tuple[str, str, str]]:
        found: dict[str, tuple[str, str, str]] = {}
        states = {r.metadata.name: r.status.state for r in readable(room.client)}
        for number, (claim, (_, phase, reason)) in enumerate(KNOWN.items()):
            state = states[f"known-{number}"]
            if state is None or (state.phase, state.reason) != (phase, reason):
                found[claim] = (state.phase, state.reason, state.message) if state else ("", "", "")
        return found

    try:
        eventually("all oddities have ended as they should", lambda: not wrong(), seconds=60, pause_seconds=0.5)
    except AssertionError:
        pytest.fail(json.dumps(wrong(), indent=1, ensure_ascii=False))
    states = {r.metadata.name: r.status.state for r in readable(room.client)}
    for claim, words in WORDS.items():
        state = states[f"known-{list(KNOWN).index(claim)}"]
        assert state is not None, claim
        assert words in state.message, claim
    be_at_rest(room)
    clear(room.client)


def create_raw(client: KubeClient, resource: Resource, body: dict[str, Any], *, namespace: str | None = None) -> None:
    """Create an object with a value that is nested deeper than Python encodes."""
    call = Call("create", resource.describe(body["metadata"]["name"], namespace=namespace))
    raw = nested_json({"apiVersion": resource.api_version, "kind": resource.kind, **body})
    client.send(Request(call, "POST", resource.path(namespace=namespace), body=raw), Repeatable.UNLESS_ACTED)


def fail_unread_plans(client: KubeClient) -> None:
    """Do once what the service does beside its runs."""
    office = ServiceContext(client, SystemClock(), RunDefaults(), installed_plugins(), None, Picture(client, ""))
    bells = WakeUp()
    with PolicyStore(office, bells) as book:
        assert book.wait(lambda: False)
        StatusController(office, book, PolicyMetrics(CollectorRegistry(), SystemClock()), bells.event()).pass_once()


def test_objects_that_are_nested_too_deeply_stop_nobody_elses_hand_over(room: Room, sandbox: Sandbox) -> None:
    client = room.client
    make_namespace(client, NEIGHBOUR)
    deep = {"containers": [{"name": "main", "image": "pause"}], "oddity": DEEP}
    create_raw(
        client,
        RESERVATIONS,
        {"metadata": {"name": "deep"}, "spec": spec_of({"template": {"spec": deep}})},
        namespace=NAMESPACE,
    )
    plan_spec = {"mode": "Auto", "policy": "none", "approved": True, "objective": {"args": {"oddity": DEEP}}}
    create_raw(client, MIGRATION_PLANS, {"metadata": {"name": "deep"}, "spec": plan_spec})
    notes = {SLOT_ANNOTATION: "[" * 5_000, "deep": "{" * 5_000}
    noted = pod_template({"app": "noted"}, cpu="100m")
    client.create(PODS, noted | {"metadata": {"name": "noted", "annotations": notes}}, namespace=NAMESPACE)

    body = build_reservation("good", owners=label_owner(app="neighbour"), cpu="100m")
    client.create(RESERVATIONS, body, namespace=NEIGHBOUR)

    def state_of(name: str, namespace: str) -> tuple[str, str]:
        found = Reservation.read(client.get(RESERVATIONS, name, namespace=namespace)).status.state
        return (found.phase, found.reason) if found else ("", "")

    eventually("the good one is held", lambda: state_of("good", NEIGHBOUR)[0] == AVAILABLE, seconds=60)
    taker = pod_template({"app": "neighbour"}, cpu="100m")
    client.create(PODS, taker | {"metadata": {"name": "taker", "labels": {"app": "neighbour"}}}, namespace=NEIGHBOUR)
    eventually("and taken", lambda: state_of("good", NEIGHBOUR)[0] == ReservationPhase.SUCCEEDED, seconds=90)
    eventually("the deep one failed", lambda: state_of("deep", NAMESPACE) == (FAILED, "Invalid"), seconds=60)
    (said,) = [one for one in readable(client) if one.metadata.name == "deep"]
    assert said.status.state is not None
    assert "spec.tasks[0].template.spec.oddity.… is nested more than 100 levels deep" in said.status.state.message

    fail_unread_plans(client)
    plan = client.get(MIGRATION_PLANS, "deep")
    assert (plan["status"]["phase"], plan["status"]["message"][:22]) == ("Failed", "invalid: spec.objectiv")
    for snapshot in (read_live_snapshot(client), Snapshot.from_json(dump_cluster(client))):
        assert [one.metadata.name for one in snapshot.reservations if one.metadata.unreadable] == ["deep"]
    planned = output_of(sandbox, "plan", want_code=0)
    (restriction,) = [one for one in planned["predicted"]["restrictions"] if one["reason"] == "UnreadableObject"]
    assert restriction["message"].startswith(f"Reservation {NAMESPACE}/deep cannot be read: spec.tasks[0].template.")
    findings = output_of(sandbox, "doctor", want_code=1)["findings"]
    unreadable = {(one["kind"], one["name"]) for one in findings if one["invariant"] == "ObjectUnreadable"}
    assert unreadable == {("reservation.batch.volcano.sh", "deep"), ("migrationplan.berth.volcano.sh", "deep")}
    for resource, name, namespace in (
        (MIGRATION_PLANS, "deep", None),
        (PODS, "noted", NAMESPACE),
        (PODS, "taker", NEIGHBOUR),
        (RESERVATIONS, "good", NEIGHBOUR),
    ):
        delete_if_there(client, resource, name, namespace)
    be_at_rest(room)
    clear(client)


def output_of(sandbox: Sandbox, command: str, *, want_code: int) -> dict[str, Any]:
    """Run a command of `berth` as a process and return what it prints."""
    program = [sys.executable, "-m", "berth_descheduler.cli", command, "--output", "json"]
    options = ["--kubeconfig", str(sandbox.kubeconfig)]
    ended = subprocess.run([*program, *options], capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == want_code, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def be_at_rest(room: Room) -> None:
    """Check that nothing is tried again and again, nothing crashed and the log does not grow, once all is told."""
    eventually("nothing more fails or is logged", lambda: is_at_rest(room), seconds=40)
    room.operator.require_running()
    crashed = [line for line in room.operator.tail(100_000).splitlines() if "Traceback" in line or "crashed" in line]
    assert crashed == []


def is_at_rest(room: Room) -> bool:
    failures, logged = room.metric("berth_operator_action_failures_total"), room.operator.log_size()
    time.sleep(REST_SECONDS)
    return room.metric("berth_operator_action_failures_total") == failures and room.operator.log_size() - logged < 4096


# --- drawn oddities -------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "a", "ümläut", "x" * 300, "a/b", "-", "1", "null", "\u0000", "日本", " ", "a.b", "A_B"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
QUANTITIES: st.SearchStrategy[Any] = st.sampled_from(
    ["1", "0", "100m", "1Gi", "1e3", "1E", "0.1", "-1", "1e400", "9" * 40, "", "1.5.5", "1mi", 1, 0.5, -2, None, [], {}]
)
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "pods", "bad name", ""]),
    QUANTITIES,
    max_size=3,
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["main", "side", "Main", "x" * 70, "ü"])},
        optional={
            "image": TEXTS,
            "resources": st.fixed_dictionaries({}, optional={"requests": RESOURCES, "limits": RESOURCES}) | JSON,
            "ports": JSON,
            "restartPolicy": st.sampled_from(["Always", "Never", "Perhaps", 1]),
            "env": JSON,
            "securityContext": JSON,
        },
    ),
    min_size=1,
    max_size=3,
)
NODE_TERMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            key: st.lists(
                st.fixed_dictionaries(
                    {"key": TEXTS, "operator": st.sampled_from(["In", "NotIn", "Exists", "Gt", "Near"])},
                    optional={"values": st.lists(TEXTS, max_size=2)},
                ),
                max_size=2,
            )
            for key in ("matchExpressions", "matchFields")
        },
    ),
    max_size=2,
)
AFFINITIES = st.fixed_dictionaries(
    {
        "nodeAffinity": st.fixed_dictionaries(
            {"requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries({"nodeSelectorTerms": NODE_TERMS})}
        )
    },
    optional={"podAffinity": JSON},
)
TEMPLATES = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS | JSON,
                "overhead": RESOURCES,
                "resources": st.fixed_dictionaries({}, optional={"requests": RESOURCES}) | JSON,
                "nodeSelector": st.dictionaries(TEXTS, TEXTS, max_size=2) | JSON,
                "affinity": AFFINITIES | JSON,
                "tolerations": st.lists(st.dictionaries(st.sampled_from(["key", "operator", "effect"]), TEXTS)) | JSON,
                "topologySpreadConstraints": JSON,
                "volumes": JSON,
                "priorityClassName": TEXTS,
                "priority": st.integers(-(2**40), 2**40) | JSON,
                "schedulerName": TEXTS,
                "nodeName": TEXTS,
                "hostNetwork": st.booleans() | JSON,
                "runtimeClassName": TEXTS,
                "activeDeadlineSeconds": st.integers(-5, 2**40) | JSON,
                "somethingElse": JSON,
            },
        )
    },
    optional={"metadata": st.fixed_dictionaries({}, optional={"labels": st.dictionaries(TEXTS, TEXTS)})},
)
TASKS = st.fixed_dictionaries(
    {"template": TEMPLATES},
    optional={
        "name": st.sampled_from(["a", "b", "A", "x" * 64, "ü"]),
        "replicas": st.sampled_from([1, 1, 1, 2, 5, 0, -1, 51, 999, 1001, 2**31, "3"]),
        "reservationNodeNames": st.lists(st.sampled_from([NODE, "nowhere", "ü", "x" * 253, ""]), max_size=3),
    },
)
SPECS = st.builds(
    lambda tasks, rest: {**spec_of(*tasks), **rest},
    st.lists(TASKS, min_size=1, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "minAvailable": st.integers(-1, 5),
            "schedulerName": TEXTS,
            "queue": TEXTS,
            "ttl": st.sampled_from(["0s", "1ns", "9999999h", "1h", "-1s", "soon", ""]),
            "owners": JSON | st.just([]),
        },
    ),
)


@settings(
    max_examples=max(1, EXAMPLES // BATCH),
    deadline=None,
    derandomize="BERTH_ODD_RESERVATIONS" not in os.environ,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(batch=st.lists(SPECS, min_size=BATCH, max_size=BATCH))
def test_any_accepted_reservation_ends_in_a_defined_state(room: Room, batch: list[dict[str, Any]]) -> None:
    taken = {f"odd-{n}": spec for n, spec in enumerate(batch) if create(room.client, f"odd-{n}", spec)}

    def unanswered() -> list[str]:
        return [r.metadata.name for r in readable(room.client) if not has_an_answer(r)]

    try:
        eventually("each has a phase, a reason and a message", lambda: not unanswered(), seconds=60)
    except AssertionError:
        pytest.fail(json.dumps({name: taken[name] for name in unanswered()}, ensure_ascii=False))
    be_at_rest(room)
    clear(room.client)


def readable(client: KubeClient) -> list[Reservation]:
    """Return the Reservations with their statuses only, as their specs may not be readable."""
    bodies = client.list(RESERVATIONS, namespace=NAMESPACE).items
    return [Reservation.read({**body, "spec": {"tasks": []}}) for body in bodies]
