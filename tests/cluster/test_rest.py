"""The HTTP interface of real services: real tokens, real rights, real plans, two replicas, and whatever is asked."""

import json
import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml

from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_descheduler.telemetry import CYCLE_FAILED
from berth_kube.client import KubeClient
from berth_kube.errors import Call
from berth_kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NAMESPACES,
    NODES,
    SERVICE_ACCOUNTS,
)
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_operator.admission.certificates import CertificateTerms, renew
from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster_objects import make_namespace
from conventions.generate_copies import CHART
from conventions.tracked import ROOT
from reservation_stage import delete_if_there
from service_processes import script
from waiting import eventually

pytestmark = pytest.mark.cluster

NAMESPACE: Final = "rest-callers"
IDLE: Final = ("--interval=24h", "--include-namespace=no-such-namespace")
"""What lets a service find nothing to do of its own accord, once its first cycle has failed: that one still continues
the plans that it finds Running.
"""
_WHOLE_LOG: Final = 10_000
"""Lines, more than a log has."""

POLICY: Final = "rest-nightly"
PAGE: Final = (
    (ROOT / "descheduler" / "docs" / "rest.md")
    .read_text(encoding="utf-8")
    .partition("\n## Clients\n")[0]
    .replace("\\\n", " ")
)
PEOPLE: Final[dict[str, Any]] = yaml.safe_load((CHART / "files" / "people-rules.yaml").read_text(encoding="utf-8"))


def named_roles(page: str) -> list[str]:
    """Return the chart's roles that a page binds."""
    return re.findall(r"--clusterrole=berth-([\w-]+)", page)


RIGHTS: Final[dict[str, list[dict[str, list[str]]]]] = {
    "runner": [
        {
            "apiGroups": ["berth.volcano.sh"],
            "resources": ["migrationplans"],
            "verbs": ["get", "list", "watch", "create", "patch"],
        },
        {
            "apiGroups": ["berth.volcano.sh"],
            "resources": ["deschedulerpolicies", "reservationwindows"],
            "verbs": ["list"],
        },
        {"apiGroups": ["batch.volcano.sh"], "resources": ["reservations"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
    ],
    "reader": [
        {"apiGroups": ["berth.volcano.sh"], "resources": ["migrationplans"], "verbs": ["get", "list", "watch"]},
    ],
    "asker": [{"apiGroups": ["berth.volcano.sh"], "resources": ["migrationplans"], "verbs": ["create"]}],
    "of-one-plan": [
        {
            "apiGroups": ["berth.volcano.sh"],
            "resources": ["migrationplans"],
            "resourceNames": ["rest-mine"],
            "verbs": ["get", "watch", "patch"],
        },
    ],
    "rollouts": [rule for role in named_roles(PAGE) for rule in PEOPLE[role]],
    "looker": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
    "nobody": [],
}


@dataclass(frozen=True)
class Interface:
    """Two replicas that answer, and who may ask them."""

    client: KubeClient
    replicas: tuple[ServiceProcess, ...]
    urls: tuple[str, ...]
    authority: Path
    tokens: dict[str, str]

    def ask(
        self,
        method: str,
        path: str,
        caller: str = "runner",
        *,
        replica: int = 0,
        **rest: Any,  # noqa: ANN401 - what requests takes
    ) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.tokens[caller]}", **rest.pop("headers", {})}
        with requests.Session() as session:
            session.trust_env = False
            session.verify = str(self.authority)
            return session.request(method, f"{self.urls[replica]}{path}", headers=headers, timeout=120, **rest)

    def plan(self, name: str) -> MigrationPlan:
        return self.client.get(MIGRATION_PLANS, name, type=MigrationPlan)


@pytest.fixture(scope="module")
def interface(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interface]:
    folder = tmp_path_factory.mktemp("rest")
    bundle = renew(None, CertificateTerms(("localhost", "127.0.0.1")), datetime.now(UTC))
    files = {"tls.crt": bundle.certificate, "tls.key": bundle.key, "ca.crt": bundle.authorities}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with sandbox.connect() as client, ExitStack() as leaving:
        make_namespace(client, NAMESPACE)
        leaving.callback(client.delete, NAMESPACES, NAMESPACE)
        tokens = {name: make_caller(client, leaving, name, rules) for name, rules in RIGHTS.items()}
        make_policy(client)
        leaving.callback(client.delete, DESCHEDULER_POLICIES, POLICY)
        leaving.callback(delete_plans, client)
        ports = (free_port(), free_port())
        replicas = tuple(leaving.enter_context(replica(sandbox, folder, port, *IDLE)) for port in ports)
        urls = tuple(f"https://127.0.0.1:{port}" for port in ports)
        found = Interface(client, replicas, urls, folder / "ca.crt", tokens)
        for index in range(len(urls)):
            eventually(f"replica {index} answers and rests", partial(rests, found, index), seconds=60)
        yield found


@pytest.fixture(autouse=True)
def no_plan_is_left(interface: Interface) -> Iterator[None]:
    yield
    delete_plans(interface.client)


def replica(
    sandbox: Sandbox, folder: Path, port: int, *options: str, rest: bool = True, certificate: Path | None = None
) -> ServiceProcess:
    """Return a service with such options, whose certificate is in its folder or in another."""
    held = certificate or folder
    command = [
        script("berth-descheduler"),
        f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
        "--health-address=127.0.0.1:0",
        *options,
    ]
    if rest:
        command += [
            f"--rest-address=127.0.0.1:{port}",
            f"--rest-certificate={held / 'tls.crt'}",
            f"--rest-key={held / 'tls.key'}",
        ]
    return ServiceProcess(command, folder / f"berth-descheduler-{port}.log")


def rests(interface: Interface, index: int) -> bool:
    """Return whether a replica answers and touches no plan any more; the replicas' cycles wait for one another."""
    return answers(interface, index) and CYCLE_FAILED in interface.replicas[index].tail(_WHOLE_LOG)


def answers(interface: Interface, index: int) -> bool:
    interface.replicas[index].require_running()
    try:
        return interface.ask("GET", "/v1/plans", replica=index).ok
    except requests.exceptions.ConnectionError:
        return False


def make_caller(client: KubeClient, leaving: ExitStack, name: str, rules: list[dict[str, list[str]]]) -> str:
    """Make a service account with exactly these rights and return a token of it."""
    client.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": NAMESPACE}})
    role = f"rest-{name}"
    group = "rbac.authorization.k8s.io"
    client.create(CLUSTER_ROLES, {"metadata": {"name": role}, "rules": rules})
    leaving.callback(client.delete, CLUSTER_ROLES, role)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    binding = {"metadata": {"name": role}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}}
    client.create(CLUSTER_ROLE_BINDINGS, {**binding, "subjects": [subject]})
    leaving.callback(client.delete, CLUSTER_ROLE_BINDINGS, role)
    return request_token(client, name)


def request_token(client: KubeClient, name: str, *audiences: str) -> str:
    """Return a token as `kubectl create token` does."""
    spec = {"expirationSeconds": 3600, **({"audiences": list(audiences)} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = SERVICE_ACCOUNTS.path(name, namespace=NAMESPACE, subresource="token")
    call = Call("create", f"a token of {name}")
    answer = client.send(Request(call, "POST", path, (), json.dumps(body).encode()), Repeatable.UNLESS_ACTED)
    return str(json.loads(answer)["status"]["token"])


def make_policy(client: KubeClient) -> None:
    profile = {"name": "default", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}
    body = {"metadata": {"name": POLICY}, "spec": {"mode": "Approve", "profiles": [profile]}}
    client.create(
        DESCHEDULER_POLICIES, {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "DeschedulerPolicy", **body}
    )


def make_plan(client: KubeClient, name: str, *, mode: str = "Approve", pods: int = 1) -> None:
    moves = [
        {"namespace": "shop", "pod": f"web-{index}", "source": "n1", "target": "n2", "wave": 1} for index in range(pods)
    ]
    spec = {"mode": mode, "moves": moves, "predicted": {"nodes": 2, "moves": pods, "waves": 1}}
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "MigrationPlan", "metadata": {"name": name}}
    client.create(MIGRATION_PLANS, {**head, "spec": spec})
    write_status(client, name, PlanPhase.PROPOSED)


def write_status(client: KubeClient, name: str, phase: PlanPhase, *states: str) -> None:
    moves = [{"namespace": "shop", "pod": f"web-{index}", "state": state} for index, state in enumerate(states)]
    body = {"status": {"phase": phase.value, **({"moves": moves} if moves else {})}}
    client.merge_patch(MIGRATION_PLANS, name, body, subresource="status")


def delete_plans(client: KubeClient) -> None:
    for plan in client.list(MIGRATION_PLANS, type=MigrationPlan).items:
        if plan.spec.policy == POLICY or plan.metadata.name.startswith("rest-"):
            delete_if_there(client, MIGRATION_PLANS, plan.metadata.name)


# --- who may do what --------------------------------------------------------------------------------------------------

ASKED: Final = {
    "plans": ("GET", "/v1/plans"),
    "a plan": ("GET", "/v1/plans/rest-over"),
    "its events": ("GET", "/v1/plans/rest-over/events"),
    "a run": ("POST", "/v1/runs"),
    "an approval": ("POST", "/v1/plans/rest-over/approve"),
    "an abort": ("POST", "/v1/plans/rest-over/abort"),
    "fragmentation": ("GET", "/v1/fragmentation"),
    "the calendar": ("GET", "/v1/calendar"),
    "findings": ("GET", "/v1/findings"),
    "policies": ("GET", "/v1/policies"),
}
MAY: Final = {
    "runner": set(ASKED),
    "reader": {"plans", "a plan", "its events"},
    "asker": {"a run"},
    "nobody": set(),
}


@pytest.mark.parametrize("caller", MAY)
def test_a_service_account_may_do_what_its_rights_say_and_nothing_else(interface: Interface, caller: str) -> None:
    make_plan(interface.client, "rest-over")
    write_status(interface.client, "rest-over", PlanPhase.SUCCEEDED, "Landed")
    for what, (method, path) in ASKED.items():
        bodies = {"a run": {"policy": POLICY}, "an approval": {"uid": interface.plan("rest-over").metadata.uid}}
        body: dict[str, Any] = {"json": bodies[what]} if what in bodies else {}
        answer = interface.ask(method, path, caller, **body)
        assert (answer.status_code != 403) == (what in MAY[caller]), (what, answer.text)
        if what in {"an approval", "an abort"} and what in MAY[caller]:
            assert answer.status_code == 409, answer.text
        elif what in MAY[caller]:
            assert answer.ok, (what, answer.text)


def test_the_callers_of_the_page_may_do_what_it_shows_as_it_stands(interface: Interface) -> None:
    make_plan(interface.client, "rest-shown")
    commands = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("curl ")]
    assert len(commands) == 7
    for words in commands:
        (url,) = (word for word in words if word.startswith("$URL"))
        path = url.removeprefix("$URL").replace("run-3f9c1d0a77", "rest-shown")
        body = words[words.index("--data") + 1] if "--data" in words else None
        asked: dict[str, Any] = {"json": {**json.loads(body), "policy": POLICY}} if body else {}
        if "If-Match: $ETAG" in words:
            asked["headers"] = {"If-Match": interface.ask("GET", "/v1/plans/rest-shown").headers["ETag"]}
        answer = interface.ask("POST" if "-X" in words or body else "GET", path, "rollouts", stream=True, **asked)
        assert answer.status_code in {200, 202}, (path, answer.text)


def test_a_right_to_one_plan_is_none_to_others_and_the_plan_says_who_used_it(interface: Interface) -> None:
    make_plan(interface.client, "rest-mine")
    make_plan(interface.client, "rest-others")
    for name, status in (("rest-mine", 202), ("rest-others", 403)):
        named = {"uid": interface.plan(name).metadata.uid}
        assert interface.ask("POST", f"/v1/plans/{name}/approve", "of-one-plan", json=named).status_code == status
        who = f"system:serviceaccount:{NAMESPACE}:of-one-plan" if status == 202 else ""
        spec = interface.plan(name).spec
        assert (spec.approved, spec.approved_by) == (status == 202, who)
    assert interface.ask("GET", "/v1/plans", "of-one-plan").status_code == 403


def test_who_may_only_ask_cannot_have_a_plan_carried_out_unseen(interface: Interface) -> None:
    refused = interface.ask("POST", "/v1/runs", "asker", json={"policy": POLICY, "mode": "Auto"})
    assert refused.status_code == 403
    assert "patch migrationplans" in refused.json()["detail"]
    assert interface.ask("POST", "/v1/runs", "runner", json={"policy": POLICY, "mode": "Auto"}).status_code == 202


def test_the_service_may_read_everything_that_doctor_looks_for(interface: Interface) -> None:
    answer = interface.ask("GET", "/v1/findings", "looker")
    assert answer.ok, answer.text
    assert answer.json()["missingRights"] == []


def test_findings_name_the_rights_that_a_caller_lacks(interface: Interface) -> None:
    missing = interface.ask("GET", "/v1/findings", "runner").json()["missingRights"]
    assert {"list events", "list mutatingwebhookconfigurations", "get leases berth-operator"} <= {*missing}
    assert not {"list nodes", "list pods", "list reservationwindows"} & {*missing}


@pytest.mark.deep
def test_a_token_for_somebody_else_and_one_of_an_account_that_is_gone_are_refused(interface: Interface) -> None:
    others = request_token(interface.client, "runner", "https://vault.example")
    tokens = {**interface.tokens, "others": others, "none": "x" * 100}
    asking = Interface(interface.client, interface.replicas, interface.urls, interface.authority, tokens)
    for caller in ("others", "none"):
        answer = asking.ask("GET", "/v1/plans", caller)
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:berth:problem:unauthenticated")
    client = interface.client
    client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "leaving", "namespace": NAMESPACE}})
    tokens["leaving"] = request_token(client, "leaving")
    assert asking.ask("GET", "/v1/plans", "leaving").status_code == 403
    client.delete(SERVICE_ACCOUNTS, "leaving", namespace=NAMESPACE)
    refused = lambda: asking.ask("GET", "/v1/plans", "leaving").status_code == 401  # noqa: E731 - a name for a claim
    eventually("the account's token is refused", refused, seconds=60)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_run_is_asked_for_once_on_whichever_replica(interface: Interface) -> None:
    body, key = {"policy": POLICY, "dryRun": True}, {"Idempotency-Key": "pipeline-4711"}
    asked = [interface.ask("POST", "/v1/runs", replica=index, json=body, headers=key) for index in (0, 1, 0)]
    assert [answer.status_code for answer in asked] == [202] * 3
    (location,) = {answer.headers["Location"] for answer in asked}
    plan = interface.plan(location.rpartition("/")[2])
    assert (plan.spec.policy, plan.spec.mode, plan.phase) == (POLICY, "Plan", PlanPhase.REQUESTED)
    assert plan.spec.requested_by == f"system:serviceaccount:{NAMESPACE}:runner"
    shown = interface.ask("GET", location, replica=1).json()
    assert (shown["phase"], shown["requestedBy"]) == ("Requested", plan.spec.requested_by)
    other = interface.ask("POST", "/v1/runs", replica=1, json={"policy": POLICY, "mode": "Auto"}, headers=key)
    assert other.status_code == 409


def test_what_a_plan_does_not_take_is_told(interface: Interface) -> None:
    make_plan(interface.client, "rest-shown", mode="Plan")
    tag = interface.ask("GET", "/v1/plans/rest-shown").headers["ETag"]
    answer = interface.ask("POST", "/v1/plans/rest-shown/approve", headers={"If-Match": tag})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:berth:problem:conflict")
    assert interface.ask("GET", "/v1/plans/rest-gone").status_code == 404
    missing = interface.ask("POST", "/v1/runs", json={"policy": "rest-gone"})
    assert (missing.status_code, missing.json()["errors"][0]["field"]) == (404, "body.policy")


@pytest.mark.parametrize("named_by", ["ETag", "version", "uid"])
def test_an_approval_goes_to_the_plan_that_was_looked_at_and_to_no_other_one_under_its_name(
    interface: Interface, named_by: str
) -> None:
    """The plan goes with its name's right, as whoever may make and delete plans can have it."""
    make_plan(interface.client, "rest-looked-at")
    looked_at = interface.ask("GET", "/v1/plans/rest-looked-at", "reader")
    tag, document = looked_at.headers["ETag"], looked_at.json()
    named: dict[str, Any] = (
        {"headers": {"If-Match": tag}} if named_by == "ETag" else {"json": {named_by: document[named_by]}}
    )
    assert tag == f'"{document["version"]}"'
    interface.client.delete(MIGRATION_PLANS, "rest-looked-at")
    make_plan(interface.client, "rest-looked-at", pods=2)

    refused = interface.ask("POST", "/v1/plans/rest-looked-at/approve", **named)

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:berth:problem:conflict")
    detail, faults = refused.json()["detail"], {fault["field"]: fault for fault in refused.json()["errors"]}
    assert "it was made anew under the same name" in detail
    assert faults["plan.uid"]["expected"] == interface.plan("rest-looked-at").metadata.uid
    if named_by != "uid":  # the API server still knows what stood there at that version
        assert "moves that are gone: none; new moves: shop/web-1 from n1 to n2" in detail
        assert faults["plan.uid"]["value"] == document["uid"]
    assert not interface.plan("rest-looked-at").spec.approved
    assert interface.ask("POST", "/v1/plans/rest-looked-at/approve").status_code == 428

    tag = interface.ask("GET", "/v1/plans/rest-looked-at").headers["ETag"]
    for _ in range(2):  # a repeated request says nothing new
        approved = interface.ask("POST", "/v1/plans/rest-looked-at/approve", headers={"If-Match": tag})
        assert (approved.status_code, approved.json()["approved"]) == (202, True), approved.text


def test_a_plan_is_followed_to_its_end_and_resumed_on_the_other_replica(interface: Interface) -> None:
    make_plan(interface.client, "rest-followed", pods=2)
    with interface.ask("GET", "/v1/plans/rest-followed/events", "reader", stream=True) as answer:
        events = read_events(answer)
        kind, first_id, data = next(events)
        assert (kind, data["phase"], len(data["moves"])) == ("plan", "Proposed", 2)
        write_status(interface.client, "rest-followed", PlanPhase.RUNNING, "Reserving", "Pending")
        write_status(interface.client, "rest-followed", PlanPhase.RUNNING, "Landed", "Evicted")
        write_status(interface.client, "rest-followed", PlanPhase.PARTIAL, "Landed", "Failed")
        told = list(events)
    seen = [(kind, data.get("pod", ""), data.get("state") or data["phase"]) for kind, _, data in told]
    assert seen == [
        ("move", "web-0", "Reserving"),
        ("phase", "", "Running"),
        ("move", "web-0", "Landed"),
        ("move", "web-1", "Evicted"),
        ("move", "web-1", "Failed"),
        ("phase", "", "Partial"),
    ]
    path = "/v1/plans/rest-followed/events"
    resumed = interface.ask("GET", path, replica=1, headers={"Last-Event-ID": first_id})
    assert [(kind, data["phase"]) for kind, _, data in read_events(resumed)] == [("plan", "Partial")]
    done = interface.ask("GET", path, replica=1, headers={"Last-Event-ID": told[-1][1]})
    assert done.status_code == 204


def test_fragmentation_is_told_of_real_nodes(sandbox: Sandbox, interface: Interface) -> None:
    names = sandbox.add_nodes(2, prefix="rest-node-")
    try:
        path = "/v1/fragmentation?shape=cpu=1,memory=1Gi"

        def is_told() -> bool:
            told = interface.ask("GET", path).json()
            (shape,) = told["shapes"]
            return bool(told["nodes"] >= 2 and shape["fits"] >= 2)

        eventually("the nodes and what fits on them are counted", is_told, seconds=60)
    finally:
        for name in names:
            interface.client.delete(NODES, name)


@pytest.mark.deep
def test_a_run_that_is_asked_for_is_carried_to_its_end_by_a_service_of_policies(
    sandbox: Sandbox, interface: Interface, tmp_path: Path
) -> None:
    path = interface.ask("POST", "/v1/runs", json={"policy": POLICY, "dryRun": True}).headers["Location"]
    with interface.ask("GET", f"{path}/events", stream=True) as answer:
        events = read_events(answer)
        assert next(events)[2]["phase"] == "Requested"
        phases = (data["phase"] for kind, _, data in events if kind in {"plan", "phase"})
        with replica(sandbox, tmp_path, 0, "--policies", rest=False):
            ended = next(phase for phase in phases if phase != "Requested")
    assert ended in {"Proposed", "Succeeded"}
    shown = interface.ask("GET", "/v1/policies").json()["items"]
    assert POLICY in [one["name"] for one in shown]


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_a_service_that_is_told_to_end_ends_its_streams_first(
    sandbox: Sandbox, interface: Interface, tmp_path: Path
) -> None:
    make_plan(interface.client, "rest-open")
    port = free_port()
    with replica(sandbox, tmp_path, port, *IDLE, certificate=interface.authority.parent) as leaving:
        third = replace(interface, replicas=(leaving,), urls=(f"https://127.0.0.1:{port}",))
        eventually("it answers and rests", partial(rests, third, 0), seconds=60)
        require_streams_to_end(third, leaving)
    assert interface.ask("GET", "/v1/plans/rest-open").ok


def require_streams_to_end(third: Interface, leaving: ServiceProcess) -> None:
    with third.ask("GET", "/v1/plans/rest-open/events", stream=True) as answer:
        lines = answer.iter_lines()
        assert next(lines) == b"retry: 2000"
        ending = threading.Thread(target=leaving.stop)
        ending.start()
        rest = list(lines)
        ending.join()
    assert b": the service ends, ask again" in rest
    assert leaving.exit_code == 0, "one that hangs is killed"


def read_events(answer: requests.Response) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, id and data of each event."""
    assert answer.status_code == 200, answer.text
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        name, _, value = line.decode().partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields = {}
