"""The operator has every right that it uses, uses every right that it has, and is refused everything else."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth_core import Pod
from berth_core.clock import SystemClock, format_timestamp
from berth_core.labels import REVOCABLE_ZONE_LABEL
from berth_core.names import DEFAULT_NAMESPACE, WEBHOOK_SECRET
from berth_core.reservations import ReservationPhase
from berth_kube.client import KubeClient, connect
from berth_kube.errors import Call, ForbiddenError, InvalidObjectError
from berth_kube.resources import (
    DEPLOYMENTS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    SECRETS,
)
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_sandbox.bootstrap import OPERATOR, read_rules
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, make_namespace, pods
from control_planes import control_plane
from reservation_stage import Stage, make_stage
from service_processes import running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


@dataclass(frozen=True, order=True)
class Right:
    """One thing that may be done; `namespace` and `name` are "" where any will do."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True)
class Deed:
    """One call that the operator made, and whether it had the right to."""

    right: Right
    allowed: bool
    refusal: str = ""
    """What an admission policy said against it."""


FOR_RACES = {
    # A placeholder that an operator made just before it was killed, and of which the next has not heard yet.
    Right("get", "", "pods", DEFAULT_NAMESPACE),
}
"""What is used only where two things meet within milliseconds."""
ON_VOLCANO = {
    *(Right(verb, "scheduling.volcano.sh", "podgroups", DEFAULT_NAMESPACE) for verb in ("create", "patch", "delete")),
    Right("list", "scheduling.volcano.sh", "queues"),
}
"""What is used only where Volcano runs; the tests on Volcano see that all of it is."""
IN_BULK = {Right("list", "batch", "jobs")}
"""What is used only where more than twenty objects are read at once, instead of one by one."""


OTHERWISE = FOR_RACES | ON_VOLCANO | IN_BULK


@pytest.fixture(scope="module")
def deeds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Deed, ...]:
    """Return what an operator did in a cluster of its own, from its first start to its last Reservation."""
    with control_plane() as sandbox:
        options = ("--retention=5", "--sweep-seconds=2", "--certificate-life=60s")
        with sandbox.connect() as client:
            stage = make_stage(sandbox, client, "rights")
            with running_operator(sandbox, tmp_path_factory.mktemp("operator"), *options, list_seconds=0.5):
                live_through_everything(stage)
        return tuple(read_deeds(sandbox.audit_log))


def live_through_everything(stage: Stage) -> None:
    """Have the operator do all that it ever does."""
    stage.reserve("taken", nodes=[stage.nodes[0]])
    stage.wait_until_proven("taken")
    hold_again_what_was_lost(stage)
    spoil_the_certificate(stage.client)
    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED, "taken")
    wait_for_capacity(stage)
    open_a_window(stage)
    lend_a_node(stage)
    write_a_queue(stage.client)
    stage.reserve("invalid", template={"spec": {"containers": [{"name": "NOT a name", "image": "x"}]}})
    stage.reserve("expired", ttl="1s")
    stage.reserve("unheard-of", template=stage.template(priorityClassName="unheard-of"))
    stage.reserve("lost", nodes=[stage.nodes[1]])
    stage.wait_until_proven("lost")
    stage.client.delete(NODES, stage.nodes[1])
    eventually("finished Reservations are collected", lambda: not stage.client.list(RESERVATIONS).items, seconds=120)
    eventually("the webhook is gone", lambda: not stage.client.list(MUTATING_WEBHOOKS).items, seconds=60)
    eventually("the classes are gone", lambda: not placeholder_classes(stage.client), seconds=60)


def wait_for_capacity(stage: Stage) -> None:
    """Have a Reservation wait for a node whose pod belongs to a Job and a pod group."""
    template = stage.template({"app": "batch"}, nodeName=stage.nodes[1], restartPolicy="Never")
    template["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "group"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch"}, "spec": {"template": template}}
    stage.client.create(JOBS, job, namespace=stage.namespace)
    eventually("the Job runs", lambda: [pod.status.phase for pod in batch(stage)] == ["Running"], seconds=60)
    stage.reserve("waiting", nodes=[stage.nodes[1]], capacity="WhenFree", fence="Node")
    stage.wait_for(ReservationPhase.WAITING, "waiting")
    stage.client.delete(RESERVATIONS, "waiting", namespace=stage.namespace)
    stage.client.delete(JOBS, "batch", namespace=stage.namespace, propagation="Background")
    eventually("the Job is gone", lambda: not batch(stage), seconds=60)


def batch(stage: Stage) -> tuple[Pod, ...]:
    return pods(stage.client, stage.namespace, app="batch")


def open_a_window(stage: Stage) -> None:
    """Have a window open, and end at another time."""
    spec = {
        "schedule": "* * * * *",
        "duration": "1m",
        "startReserveAgo": "1m",
        "podNumToReserve": 1,
        "resources": {"cpu": "1"},
        "nodeSelector": stage.selector,
        "mayMove": "Consolidate",
    }
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "ReservationWindow", "metadata": {"name": "window"}}
    stage.client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=stage.namespace)
    eventually("the window holds a place", lambda: bool(expiries(stage)), seconds=60)
    much_later = format_timestamp(SystemClock().now() + timedelta(minutes=10))
    longer = {"spec": {"duration": "30m"}}
    stage.client.merge_patch(RESERVATION_WINDOWS, "window", longer, namespace=stage.namespace)
    eventually("it ends later", lambda: any(one > much_later for one in expiries(stage)), seconds=60)
    stage.client.delete(RESERVATION_WINDOWS, "window", namespace=stage.namespace)
    eventually("what it held is gone", lambda: not expiries(stage), seconds=120)


def lend_a_node(stage: Stage) -> None:
    """Have a zone fence a node, and take it off again."""
    node = stage.nodes[1]
    stage.client.merge_patch(NODES, node, {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: "zone"}}})
    spec = {"windows": ["0:00-24:00"]}
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "metadata": {"name": "zone"}}
    stage.client.create(REVOCABLE_ZONES, {**head, "spec": spec})

    def is_fenced() -> bool:
        status = stage.client.get(REVOCABLE_ZONES, "zone").get("status", {})
        return any(one["type"] == "Fenced" and one["status"] == "True" for one in status.get("conditions", ()))

    eventually("the node is fenced", is_fenced, seconds=60)
    stage.client.delete(REVOCABLE_ZONES, "zone")
    stage.client.merge_patch(NODES, node, {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: None}}})


def write_a_queue(client: KubeClient) -> None:
    """Have a queue gate the pods of one namespace, and then of another."""
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "Queue", "metadata": {"name": "queue"}}
    for name in ("first", "second"):
        make_namespace(client, name)
    client.create(QUEUES, {**head, "spec": chosen("first")})
    eventually("the first is gated", lambda: gated_namespaces(client) == ["first"], seconds=60)
    client.merge_patch(QUEUES, "queue", {"spec": chosen("second")})
    eventually("the second is gated", lambda: gated_namespaces(client) == ["second"], seconds=60)
    client.delete(QUEUES, "queue")


def chosen(namespace: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def gated_namespaces(client: KubeClient) -> list[str]:
    """Return the namespaces that the registration of queues names."""
    found = [one for one in client.list(MUTATING_WEBHOOKS).items if one["metadata"]["name"] == "berth-queues"]
    selectors = [one["webhooks"][0]["namespaceSelector"] for one in found]
    return [name for one in selectors for name in one["matchExpressions"][0]["values"]]


def expiries(stage: Stage) -> list[str]:
    """Return when the Reservations of the window end."""
    found = stage.client.list(RESERVATIONS, namespace=stage.namespace).items
    return [one["spec"]["expires"] for one in found if one["metadata"]["name"].startswith("window-")]


def hold_again_what_was_lost(stage: Stage) -> None:
    """Delete a placeholder, so that the same event is told again."""
    (placeholder,) = stage.placeholders("taken")
    stage.client.delete(PODS, placeholder.metadata.name, namespace=DEFAULT_NAMESPACE)
    eventually(
        "the place is held by another",
        lambda: {pod.metadata.uid for pod in stage.placeholders("taken")} - {placeholder.metadata.uid},
        seconds=60,
    )
    stage.wait_until_proven("taken")


def spoil_the_certificate(client: KubeClient) -> None:
    """Break the Secret, so that the operator has to write it anew."""
    client.merge_patch(SECRETS, WEBHOOK_SECRET, {"data": {"tls.crt": None}}, namespace=DEFAULT_NAMESPACE)


def placeholder_classes(client: KubeClient) -> list[str]:
    names = [item["metadata"]["name"] for item in client.list(PRIORITY_CLASSES).items]
    return [name for name in names if name.startswith("berth-")]


def read_deeds(log: Path) -> Iterator[Deed]:
    whole, _, _ = log.read_text(encoding="utf-8").rpartition("\n")  # somebody else's line may just be written
    for line in whole.splitlines():
        entry = json.loads(line)
        target = entry.get("objectRef")
        if target is None or not entry["user"]["username"].endswith(f":{OPERATOR}"):
            continue
        resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
        right = Right(
            entry["verb"], target.get("apiGroup", ""), resource, target.get("namespace", ""), target.get("name", "")
        )
        told = entry.get("responseStatus", {}).get("message", "")
        refusal = told if "ValidatingAdmissionPolicy" in told else ""
        yield Deed(right, entry["annotations"]["authorization.k8s.io/decision"] == "allow", refusal)


PARTS = {"clusterRules": "", "namespaceRules": DEFAULT_NAMESPACE, "dryRunRules": ""}


def given_rights(*parts: str) -> Iterator[Right]:
    """Yield every right that the rules give, or parts of them, one by one."""
    for part, namespace in ((part, PARTS[part]) for part in parts or PARTS):
        for rule in read_rules(OPERATOR)[part]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            yield Right(verb, group, resource, namespace, name)


def covers(right: Right, deed: Right) -> bool:
    """Return whether a right allows a deed."""
    return (right.verb, right.group, right.resource) == (deed.verb, deed.group, deed.resource) and all(
        not allowed or allowed == done for allowed, done in ((right.namespace, deed.namespace), (right.name, deed.name))
    )


def test_every_right_is_used(deeds: tuple[Deed, ...]) -> None:
    done = {deed.right for deed in deeds if deed.allowed}
    unused = [right for right in given_rights() if not any(covers(right, one) for one in done | OTHERWISE)]
    assert not unused, "\n".join(map(str, unused))


def test_every_call_is_allowed(deeds: tuple[Deed, ...]) -> None:
    assert sorted({deed.right for deed in deeds if not deed.allowed}) == []


def test_no_call_is_refused_by_an_admission_policy(deeds: tuple[Deed, ...]) -> None:
    assert [deed for deed in deeds if deed.refusal] == []


def test_no_right_is_given_twice() -> None:
    rights = list(given_rights("clusterRules", "namespaceRules"))  # dry runs need one that is wider than another
    twice = [one for one in rights if sum(covers(other, one) for other in rights) > 1]
    assert twice == []


@pytest.fixture
def operator_client(sandbox: Sandbox) -> Iterator[KubeClient]:
    with connect(kubeconfig=str(sandbox.service_account_kubeconfig(OPERATOR))) as client:
        yield client


NOT_GIVEN = {
    "delete a pod in another namespace": Right("delete", "", "pods", "default"),
    "evict a pod": Right("create", "", "pods/eviction", "default"),
    "bind a pod": Right("create", "", "pods/binding", "default"),
    "run a command in a placeholder": Right("create", "", "pods/exec", DEFAULT_NAMESPACE),
    "read secrets elsewhere": Right("get", "", "secrets", "kube-system"),
    "list its own namespace's secrets": Right("list", "", "secrets", DEFAULT_NAMESPACE),
    "read another secret of its own namespace": Right("get", "", "secrets", DEFAULT_NAMESPACE, "other"),
    "change another lease": Right("patch", "coordination.k8s.io", "leases", DEFAULT_NAMESPACE, "berth-descheduler"),
    "change a deployment": Right("patch", "apps", "deployments", "default"),
    "change a window": Right("patch", "berth.volcano.sh", "reservationwindows", "default"),
    "change a queue": Right("patch", "berth.volcano.sh", "queues"),
    "create a plan": Right("create", "berth.volcano.sh", "migrationplans"),
    "delete a node": Right("delete", "", "nodes"),
    "change another webhook": Right(
        "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "other"
    ),
    "give rights": Right("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    "make a token": Right("create", "", "serviceaccounts/token", DEFAULT_NAMESPACE, "berth-descheduler"),
    "act as somebody else": Right("impersonate", "", "users", "", "admin"),
}


@pytest.mark.parametrize("right", NOT_GIVEN.values(), ids=NOT_GIVEN.keys())
def test_the_operator_may_not(operator_client: KubeClient, right: Right) -> None:
    assert not is_allowed(operator_client, right)


def test_the_answers_above_are_not_all_no(operator_client: KubeClient) -> None:
    assert all(is_allowed(operator_client, right) for right in given_rights())


def is_allowed(client: KubeClient, right: Right) -> bool:
    """Return what the API server says of itself."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    request = Request(Call("ask", "whether something is allowed"), "POST", path, body=msgspec.json.encode(body))
    allowed: bool = msgspec.json.decode(client.send(request, Repeatable.ALWAYS))["status"]["allowed"]
    return allowed


def test_what_is_not_given_is_refused_when_it_is_tried(operator_client: KubeClient, stage: Stage) -> None:
    stage.create_pod("bystander", app="bystander")
    stage.client.create(DEPLOYMENTS, build_deployment("web", replicas=0, cpu="1"), namespace=stage.namespace)
    pod = {"apiVersion": "v1", "kind": "Pod", **stage.template()}
    pod["metadata"]["name"] = "intruder"
    note = {"metadata": {"annotations": {"x": "y"}}}
    with pytest.raises(InvalidObjectError, match="only be created as a dry run"):
        operator_client.create(PODS, pod, namespace=stage.namespace)
    with pytest.raises(ForbiddenError):
        operator_client.delete(PODS, "bystander", namespace=stage.namespace)
    with pytest.raises(ForbiddenError):
        operator_client.merge_patch(DEPLOYMENTS, "web", note, namespace=stage.namespace)
    with pytest.raises(ForbiddenError):
        operator_client.merge_patch(LEASES, "berth-descheduler", note, namespace=DEFAULT_NAMESPACE)
    with pytest.raises(ForbiddenError):
        operator_client.delete(NODES, stage.nodes[0])
    for namespace in ("kube-system", stage.namespace, DEFAULT_NAMESPACE):
        with pytest.raises(ForbiddenError):
            operator_client.list(SECRETS, namespace=namespace)
