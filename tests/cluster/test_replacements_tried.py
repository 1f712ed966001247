"""What a controller would make next is tried by dry run on a real API server, with the descheduler's rights only."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
import structlog

from berth_core.clock import SystemClock
from berth_core.migration_plans import MoveReason
from berth_core.names import DEFAULT_NAMESPACE, REPLACEMENT_TRIAL
from berth_descheduler import telemetry
from berth_descheduler.migration.manifests.reservation_templates import build_template
from berth_descheduler.migration.replacement_trial.bounds import trial_user
from berth_descheduler.migration.replacement_trial.trial import ReplacementTrial, TrialRefusal
from berth_kube.client import KubeClient, connect
from berth_kube.errors import KubeError
from berth_kube.resources import (
    ADMISSION_POLICY_BINDINGS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from berth_sandbox.bootstrap import DESCHEDULER, build_admission_policies
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, is_gone, label_owner, make_namespace, pod_template, pods
from waiting import eventually

pytestmark = pytest.mark.cluster

CPU: Final = "100m"


@dataclass
class Stage:
    """A namespace with controllers, and what tries their next pods."""

    admin: KubeClient
    client: KubeClient
    """With the descheduler's rights."""

    namespace: str
    left_out: list[str] = field(default_factory=list)

    def trial(self, namespace: str = DEFAULT_NAMESPACE) -> ReplacementTrial:
        return ReplacementTrial(self.client, SystemClock(), namespace, self.left_out.append)

    def make(self, resource: Resource, name: str = "web", *, cpu: str = CPU, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a spec
        """Create a controller of one pod and return this pod."""
        template_spec = spec.pop("pod", {})
        template = pod_template({"app": name}, cpu=cpu, **template_spec)
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"template": template, **spec}}
        if resource is JOBS:
            template["spec"]["restartPolicy"] = "Never"
        else:
            labels = {"app": name}
            body["spec"] |= {"replicas": 1}
            body["spec"]["selector"] = labels if resource is REPLICATION_CONTROLLERS else {"matchLabels": labels}
        self.admin.create(resource, body, namespace=self.namespace)
        eventually("its pod is made", lambda: pods(self.admin, self.namespace, app=name), seconds=60)
        (made,) = self.admin.list(PODS, namespace=self.namespace, label_selector=f"app={name}").items
        return made

    def change(self, resource: Resource, change: dict[str, Any], name: str = "web") -> None:
        raw = self.admin.get(resource, name, namespace=self.namespace)
        template = raw["spec"]["template"]["spec"]["containers"][0]
        template["resources"] = change
        body = {"spec": {"template": {"spec": {"containers": [template]}}}}
        self.admin.merge_patch(resource, name, body, namespace=self.namespace)

    def create(self, resource: Resource, name: str, **body: Any) -> None:  # noqa: ANN401 - fields of an object
        self.admin.create(resource, {"metadata": {"name": name}, **body}, namespace=self.namespace)

    def refusal(self, raw_pod: dict[str, Any]) -> TrialRefusal | None:
        with closing(self.trial()) as trial:
            return trial.before_reservation(raw_pod, build_template(raw_pod), "default-scheduler")


@pytest.fixture
def stage(sandbox: Sandbox) -> Iterator[Stage]:
    kubeconfig = sandbox.service_account_kubeconfig(DESCHEDULER)
    with sandbox.connect() as admin, connect(kubeconfig=str(kubeconfig)) as client:
        namespace = make_namespace(admin, f"tried-{uuid4().hex[:8]}")
        yield Stage(admin, client, namespace)
        for resource in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS, JOBS):
            for raw in admin.list(resource, namespace=namespace).items:
                admin.delete(resource, raw["metadata"]["name"], namespace=namespace, propagation="Background")
        admin.delete(NAMESPACES, namespace)
        eventually("its pods are gone", lambda: not admin.list(PODS, namespace=namespace).items, seconds=90)


@pytest.mark.parametrize("resource", [REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS, JOBS], ids=lambda r: r.kind)
def test_a_pod_that_comes_back_as_it_was_goes(stage: Stage, resource: Resource) -> None:
    with structlog.testing.capture_logs() as lines:
        assert stage.refusal(stage.make(resource)) is None
    assert (stage.left_out, lines) == ([], [])


def test_what_the_template_asks_for_by_now_has_no_room_in_the_place(stage: Stage) -> None:
    raw_pod = stage.make(REPLICA_SETS)
    stage.change(REPLICA_SETS, {"requests": {"cpu": "2"}})
    refusal = stage.refusal(raw_pod)
    assert refusal is not None
    assert refusal.reason is MoveReason.REPLACEMENT_DIFFERS
    assert "cpu requested is 2, above 100m" in refusal.message


def test_right_before_an_eviction_the_place_that_is_held_is_compared(stage: Stage) -> None:
    raw_pod = stage.make(REPLICA_SETS)
    body = build_reservation("small", cpu="50m", owners=label_owner(app="web"))
    stage.admin.create(RESERVATIONS, body, namespace=stage.namespace)
    with closing(stage.trial()) as trial:
        refusal = trial.before_eviction(raw_pod, stage.client, reservation="small")
    stage.admin.delete(RESERVATIONS, "small", namespace=stage.namespace)
    assert refusal is not None
    assert "cpu requested is 100m, above 50m" in refusal.message


@pytest.mark.parametrize(
    ("strategy", "want_reason"),
    [
        ({"type": "OnDelete"}, MoveReason.REPLACEMENT_DIFFERS),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, None),
    ],
    ids=["OnDelete", "partition"],
)
def test_a_stateful_set_makes_the_pod_by_the_revision_in_use(
    stage: Stage, strategy: dict[str, Any], want_reason: MoveReason | None
) -> None:
    raw_pod = stage.make(STATEFUL_SETS, updateStrategy=strategy)
    first = raw_pod["metadata"]["labels"]["controller-revision-hash"]
    stage.change(STATEFUL_SETS, {"requests": {"cpu": "2"}})
    status = lambda: stage.admin.get(STATEFUL_SETS, "web", namespace=stage.namespace)["status"]  # noqa: E731
    eventually("the change is observed", lambda: status().get("updateRevision") not in {None, first}, seconds=60)
    refusal = stage.refusal(raw_pod)
    assert (refusal.reason if refusal else None) is want_reason


def without_its_account(stage: Stage) -> dict[str, Any]:
    stage.create(SERVICE_ACCOUNTS, "worker")
    raw_pod = stage.make(REPLICA_SETS, pod={"serviceAccountName": "worker"})
    stage.admin.delete(SERVICE_ACCOUNTS, "worker", namespace=stage.namespace)
    return raw_pod


def under_pod_security(stage: Stage) -> dict[str, Any]:
    raw_pod = stage.make(REPLICA_SETS)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    stage.admin.merge_patch(NAMESPACES, stage.namespace, {"metadata": {"labels": labels}})
    return raw_pod


def with_a_lower_quota(stage: Stage) -> dict[str, Any]:
    raw_pod = stage.make(REPLICA_SETS)
    fill_quota(stage, {"requests.cpu": "50m"}, {"requests.cpu": CPU})
    return raw_pod


def with_greater_defaults(stage: Stage) -> dict[str, Any]:
    container = {"name": "main", "image": "pause"}
    raw_pod = stage.make(REPLICA_SETS, pod={"containers": [container]})
    defaults = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]}
    stage.create(LIMIT_RANGES, "defaults", spec=defaults)
    return raw_pod


@pytest.mark.parametrize(
    ("arrange", "want_reason", "want_words"),
    [
        (without_its_account, MoveReason.REPLACEMENT_REFUSED, 'serviceaccount "worker" not found'),
        (under_pod_security, MoveReason.REPLACEMENT_REFUSED, 'violates PodSecurity "restricted:latest"'),
        (with_a_lower_quota, MoveReason.REPLACEMENT_REFUSED, "exceeded quota: full"),
        (with_greater_defaults, MoveReason.REPLACEMENT_DIFFERS, "cpu requested is 2, above 0"),
    ],
    ids=["account", "pod security", "quota", "defaults"],
)
def test_what_admission_says_to_the_next_pod_keeps_this_one(
    stage: Stage, arrange: Callable[[Stage], dict[str, Any]], want_reason: MoveReason, want_words: str
) -> None:
    raw_pod = arrange(stage)
    answers: list[TrialRefusal] = []

    def is_refused() -> bool:
        """Admission reads accounts, namespaces, quotas and defaults from caches of its own."""
        refusal = stage.refusal(raw_pod)
        answers.extend([refusal] if refusal else [])
        return bool(answers)

    eventually("admission knows", is_refused, seconds=60)
    assert answers[0].reason is want_reason
    assert want_words in answers[0].message
    assert raw_pod["metadata"]["name"] not in answers[0].message


def test_a_quota_that_the_eviction_frees_keeps_no_pod(stage: Stage) -> None:
    raw_pod = stage.make(REPLICA_SETS)
    fill_quota(stage, {"pods": "1", "requests.cpu": CPU}, {"pods": "1", "requests.cpu": CPU})
    body = {"metadata": {"name": "further"}, "spec": pod_template({}, cpu=CPU)["spec"]}

    def is_full() -> bool:
        try:
            stage.admin.create(PODS, body, namespace=stage.namespace, dry_run=True)
        except KubeError as error:
            return "exceeded quota" in error.message
        return False

    eventually("the quota is enforced", is_full, seconds=60)
    assert stage.refusal(raw_pod) is None


def fill_quota(stage: Stage, hard: dict[str, str], used: dict[str, str]) -> None:
    stage.create(RESOURCE_QUOTAS, "full", spec={"hard": hard})
    status = lambda: stage.admin.get(RESOURCE_QUOTAS, "full", namespace=stage.namespace).get("status", {})  # noqa: E731
    eventually("the quota counts the pod", lambda: status().get("used") == used, seconds=60)


def test_a_webhook_that_cannot_dry_run_leaves_it_unknown(stage: Stage, sandbox: Sandbox) -> None:
    raw_pod = stage.make(REPLICA_SETS)
    with stored_webhook(sandbox, stage.namespace):
        eventually("the webhook is asked", lambda: "does not support dry run" in dry_run_error(stage), seconds=60)
        with structlog.testing.capture_logs() as lines:
            assert stage.refusal(raw_pod) is None
    (line,) = lines
    assert line["event"] == telemetry.NOT_TRIED
    assert "does not support dry run" in line["reason"]
    assert stage.left_out == []


def dry_run_error(stage: Stage) -> str:
    body = {"metadata": {"name": "asked"}, "spec": pod_template({}, cpu=CPU)["spec"]}
    try:
        stage.admin.create(PODS, body, namespace=stage.namespace, dry_run=True)
    except KubeError as error:
        return error.message
    return ""


@contextmanager
def stored_webhook(sandbox: Sandbox, namespace: str) -> Iterator[None]:
    """Register a webhook with side effects, as only API servers before 1.22 took them: straight into etcd."""
    name = f"effects-{namespace}"
    hook = {
        "name": "effects.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}
        ],
        "sideEffects": "Some",
        "timeoutSeconds": 1,
    }
    body = {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": name, "uid": str(uuid4()), "creationTimestamp": "2020-01-01T00:00:00Z"},
        "webhooks": [hook],
    }
    key = f"/registry/{VALIDATING_WEBHOOKS.plural}/{name}"
    encoded = {"key": base64.b64encode(key.encode()), "value": base64.b64encode(json.dumps(body).encode())}
    put = Request(
        f"http://127.0.0.1:{sandbox.ports.etcd}/v3/kv/put",
        json.dumps({field_name: text.decode() for field_name, text in encoded.items()}).encode(),
    )
    with urlopen(put, timeout=30) as answer:  # noqa: S310 - as above
        assert answer.status == 200
    try:
        yield
    finally:
        with sandbox.connect() as admin:
            admin.delete(VALIDATING_WEBHOOKS, name)


def test_the_account_makes_no_pod_but_by_dry_run(stage: Stage) -> None:
    """Not in Berth's own namespace either."""
    body = {"metadata": {"name": "made"}, "spec": pod_template({}, cpu=CPU)["spec"]}
    body["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    body["spec"]["containers"][0]["securityContext"] = confined
    with closing(stage.client.impersonating(trial_user(DEFAULT_NAMESPACE), 1)) as account:
        account.create(PODS, body, namespace=stage.namespace, dry_run=True)
        for namespace in (stage.namespace, DEFAULT_NAMESPACE):
            with pytest.raises(KubeError, match="pods may only be created as a dry run"):
                account.create(PODS, body, namespace=namespace)
        with pytest.raises(KubeError, match="cannot list"):
            account.list(PODS)
    with pytest.raises(KubeError, match="cannot create"):
        stage.client.create(PODS, body, namespace=stage.namespace, dry_run=True)
    assert is_gone(stage.admin, PODS, "made", stage.namespace)


def test_without_its_bounds_the_trial_is_left_out_and_that_is_said_once(stage: Stage) -> None:
    raw_pod = stage.make(REPLICA_SETS)
    stage.change(REPLICA_SETS, {"requests": {"cpu": "2"}})
    bindings = {binding["metadata"]["name"]: binding for _, binding in build_admission_policies()}
    stage.admin.delete(ADMISSION_POLICY_BINDINGS, REPLACEMENT_TRIAL)
    try:
        with closing(stage.trial()) as trial:
            for _ in range(2):
                assert trial.before_reservation(raw_pod, build_template(raw_pod), "default-scheduler") is None
            assert trial.before_eviction(raw_pod, stage.client, reservation="none") is None
    finally:
        stage.admin.create(ADMISSION_POLICY_BINDINGS, bindings[REPLACEMENT_TRIAL])
        eventually("the account is held again", lambda: is_held(stage), seconds=60)
    assert stage.left_out == [f"there is no ValidatingAdmissionPolicyBinding {REPLACEMENT_TRIAL}"]
    assert stage.refusal(raw_pod) is not None


def is_held(stage: Stage) -> bool:
    """Return whether the account cannot make a pod; one that it has made is taken away."""
    body = {"metadata": {"name": "probe"}, "spec": pod_template({}, cpu=CPU)["spec"]}
    with closing(stage.client.impersonating(trial_user(DEFAULT_NAMESPACE), 1)) as account:
        try:
            account.create(PODS, body, namespace=stage.namespace)
        except KubeError as error:
            return "pods may only be created as a dry run" in error.message
    stage.admin.delete(PODS, "probe", namespace=stage.namespace, grace_seconds=0)
    return False


def test_a_berth_in_another_namespace_is_not_taken_for_bounded(stage: Stage) -> None:
    raw_pod = stage.make(REPLICA_SETS)
    with closing(stage.trial("elsewhere")) as trial:
        assert trial.before_reservation(raw_pod, build_template(raw_pod), "default-scheduler") is None
    (reason,) = stage.left_out
    assert "its matchConditions are not for system:serviceaccount:elsewhere:berth-replacement-trial alone" in reason
