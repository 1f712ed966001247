"""The pod that a controller would make next: how it is built, compared, refused, and when it is not tried at all."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
import structlog

from berth_core.errors import InputError
from berth_core.migration_plans import MoveMethod, MoveReason, PlannedMove
from berth_core.names import DEFAULT_NAMESPACE, REPLACEMENT_TRIAL
from berth_descheduler import telemetry
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.manifests.reservation_templates import build_template
from berth_descheduler.migration.moves.reservation_request import PlaceTerms, reserve
from berth_descheduler.migration.replacement_trial.bounds import (
    trial_user,
    why_binding_lets_through,
    why_policy_lets_through,
)
from berth_descheduler.migration.replacement_trial.comparison import find_differences, find_excess
from berth_descheduler.migration.replacement_trial.findings import find_unbounded_account, why_not_tried
from berth_descheduler.migration.replacement_trial.manifest import (
    build_replacement,
    old_revision,
    ordinal_of,
    template_of_revision,
)
from berth_descheduler.migration.replacement_trial.refusals import Denial, FullQuota, Unknown, read_error
from berth_descheduler.migration.replacement_trial.trial import ReplacementTrial
from berth_kube.errors import (
    Call,
    Failure,
    ForbiddenError,
    InvalidObjectError,
    KubeError,
    NotFoundError,
    RefusedError,
    ServerError,
)
from berth_kube.resources import Resource
from berth_sandbox.bootstrap import build_admission_policies
from builders import FakeClock

RawObject = dict[str, Any]

CONTAINER: Final = {"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}
CALL: Final = Call("create", "pods default/web-")


def owner(kind: str = "ReplicaSet", api_version: str = "apps/v1", **spec: Any) -> RawObject:  # noqa: ANN401 - fields of a spec
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x"}},
        "spec": {"containers": [CONTAINER]},
    }
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default", "uid": "owner-uid"},
        "spec": {"template": template, **spec},
    }


def raw_pod(name: str = "web-1", **metadata: Any) -> RawObject:  # noqa: ANN401 - fields of a pod's metadata
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "owner-uid", "controller": True}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": "uid", "ownerReferences": [reference], **metadata},
        "spec": {"containers": [CONTAINER], "schedulerName": "default-scheduler"},
    }


def made(owning: RawObject, pod: RawObject | None = None, revision: str = "") -> RawObject:
    return build_replacement(owning, owning["spec"]["template"], pod or raw_pod(), revision)


# --- the pod that is made --------------------------------------------------------------------------------------------


def test_a_replacement_is_what_its_controller_would_ask_for() -> None:
    """Its owner is not blocked from deletion: that takes a right on the owner where a plugin asks for it."""
    replacement = made(owner())
    assert replacement["metadata"] == {
        "generateName": "web-",
        "namespace": "default",
        "labels": {"app": "web"},
        "annotations": {"note": "x"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "owner-uid", "controller": True}
        ],
    }
    assert replacement["spec"] == {"containers": [CONTAINER]}


def test_a_replacement_of_a_stateful_set_has_its_identity_and_claims() -> None:
    """Not its name: the pod that leaves has that."""
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    stateful_set = owner("StatefulSet", serviceName="peers", volumeClaimTemplates=claims)
    stateful_set["spec"]["template"]["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "scratch", "emptyDir": {}},
    ]
    replacement = made(stateful_set, raw_pod("web-1"), "web-abc")
    assert replacement["metadata"]["generateName"] == "web-1-"
    assert replacement["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": "web-abc",
    }
    spec = replacement["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("web-1", "peers")
    assert spec["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
        {"name": "scratch", "emptyDir": {}},
    ]


def test_a_replacement_of_an_indexed_job_does_the_work_of_its_index() -> None:
    index = {"batch.kubernetes.io/job-completion-index": "3"}
    replacement = made(owner("Job", "batch/v1"), raw_pod("web-3-x", annotations=index))
    metadata = replacement["metadata"]
    assert metadata["generateName"] == "web-3-"
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert index.items() <= metadata["labels"].items()
    assert index.items() <= metadata["annotations"].items()
    assert replacement["spec"]["hostname"] == "web-3"


def test_the_template_stays_as_it_was_read() -> None:
    stateful_set = owner("StatefulSet")
    made(stateful_set)
    assert stateful_set == owner("StatefulSet")


@pytest.mark.parametrize(
    ("spec", "want_revision"),
    [
        ({}, ""),
        ({"updateStrategy": {"type": "OnDelete"}}, ""),
        ({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}, ""),
        ({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}, ""),
        ({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}, "web-old"),
        ({"updateStrategy": {"rollingUpdate": {"partition": 1}}, "ordinals": {"start": 1}}, "web-old"),
    ],
)
def test_the_revision_of_a_stateful_set_is_the_one_that_its_controller_takes(
    spec: RawObject, want_revision: str
) -> None:
    stateful_set = {
        **owner("StatefulSet", **spec),
        "status": {"currentRevision": "web-old", "updateRevision": "web-new"},
    }
    assert old_revision(stateful_set, raw_pod("web-1")) == want_revision


def test_a_stateful_set_without_an_older_revision_goes_by_its_template() -> None:
    spec = {"updateStrategy": {"rollingUpdate": {"partition": 2}}}
    assert old_revision(owner("StatefulSet", **spec), raw_pod("web-1")) == ""


@pytest.mark.parametrize("name", ["web", "web-x", "other-1"])
def test_a_name_without_an_ordinal_is_not_guessed_at(name: str) -> None:
    with pytest.raises(ValueError, match="no ordinal"):
        ordinal_of(owner("StatefulSet"), raw_pod(name))


def test_a_revision_keeps_its_template_as_a_patch() -> None:
    template = {"spec": {"containers": [CONTAINER]}}
    revision = {"data": {"spec": {"template": {**template, "$patch": "replace"}}}}
    assert template_of_revision(revision) == template


# --- compared with the place -----------------------------------------------------------------------------------------

CHANGES: Final[Mapping[str, tuple[RawObject, str]]] = {
    "more": (
        {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}}]},
        "cpu requested is 2, above 200m",
    ),
    "a selector": ({"nodeSelector": {"zone": "b"}}, "nodeSelector is"),
    "a toleration": ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, "tolerations are not the template's"),
    "a priority class": ({"priorityClassName": "low"}, "priorityClassName is 'low', not ''"),
    "another scheduler": ({"schedulerName": "volcano"}, "schedulerName is 'volcano', not 'default-scheduler'"),
    "a node": ({"nodeName": "n9"}, "nodeName is 'n9', whichever node has the place of web-1"),
    "a port of the node": (
        {"containers": [{**CONTAINER, "ports": [{"containerPort": 80, "hostPort": 8080}]}]},
        "hostPort is 8080/TCP, which the pod that leaves does not have",
    ),
    "a claim": (
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        "volumes have the persistentVolumeClaim data, which the pod that leaves does not have",
    ),
    "an ephemeral claim": (
        {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        "volumes have an ephemeral claim, which the pod that leaves does not have",
    ),
    "devices": (
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        "resourceClaims ask for devices, which no placeholder holds",
    ),
    "affinity": (
        {
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
            }
        },
        "affinity is not the template's",
    ),
    "spread": (
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
            ]
        },
        "topologySpreadConstraints are not the template's",
    ),
}


@pytest.mark.parametrize(("change", "want_words"), CHANGES.values(), ids=CHANGES)
def test_what_keeps_a_replacement_from_the_place_is_named(change: RawObject, want_words: str) -> None:
    (difference,) = differences({**raw_pod()["spec"], **change})
    assert want_words in difference


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"containers": [{**CONTAINER, "image": "web:2", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
        {"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "config", "configMap": {"name": "web"}}]},
        {"tolerations": [{"key": "berth.volcano.sh/handover", "operator": "Exists"}]},
        {"schedulingGates": [{"name": "berth.volcano.sh/handover"}]},
        {
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ]
        },
    ],
    ids=["nothing", "less of a new image", "harmless volumes", "a hand-over", "a gate", "the API server's defaults"],
)
def test_what_makes_no_difference_to_the_place_keeps_no_pod(change: RawObject) -> None:
    assert differences({**raw_pod()["spec"], **change}) == ()


def differences(spec: RawObject) -> tuple[str, ...]:
    old_pod = raw_pod()
    replacement = {"metadata": {"name": "web-2", "namespace": "default"}, "spec": spec}
    return find_differences(replacement, build_template(old_pod), old_pod, scheduler_name="default-scheduler")


def test_of_a_pod_that_admission_has_not_completed_only_requests_are_compared() -> None:
    spec = {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "300m"}}}], "priorityClassName": "given"}
    assert find_excess({"spec": spec}, build_template(raw_pod())) == ("cpu requested is 300m, above 200m",)


# --- what an error says ----------------------------------------------------------------------------------------------

FORBIDDEN: Final = 'pods "web-x7k2p" is forbidden: '
BY_POLICY: Final = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
OF_LIMITS: Final = "exceeded quota: q, requested: limits.cpu=1, used: limits.cpu=4, limited: limits.cpu=4"
LOWERED: Final = "exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=3"
ERRORS: Final[Mapping[str, tuple[KubeError, Denial | FullQuota | Unknown]]] = {
    "account": (
        ForbiddenError(CALL, Failure(403, "Forbidden", f"{FORBIDDEN}error looking up service account default/w: none")),
        Denial("error looking up service account default/w: none"),
    ),
    "validation": (
        InvalidObjectError(CALL, Failure(422, "Invalid", 'Pod "web-x7k2p" is invalid: spec.hostNetwork')),
        Denial("spec.hostNetwork"),
    ),
    "a webhook's denial with a code of its own": (
        RefusedError(CALL, Failure(400, "", 'admission webhook "a.b" denied the request: no')),
        Denial('admission webhook "a.b" denied the request: no'),
    ),
    "a policy's denial": (
        InvalidObjectError(CALL, Failure(422, "Invalid", BY_POLICY)),
        Denial(BY_POLICY),
    ),
    "a webhook without dry runs": (
        RefusedError(CALL, Failure(400, "BadRequest", 'admission webhook "a.b" does not support dry run')),
        Unknown('admission webhook "a.b" does not support dry run'),
    ),
    "a missing right": (
        ForbiddenError(CALL, Failure(403, "Forbidden", 'pods is forbidden: User "u" cannot create resource "pods"')),
        Unknown('pods is forbidden: User "u" cannot create resource "pods"'),
    ),
    "a proxy in between": (RefusedError(CALL, Failure(413, "", "too large")), Unknown("too large")),
    "a quota that the old pod leaves": (
        ForbiddenError(
            CALL,
            Failure(
                403,
                "Forbidden",
                f"{FORBIDDEN}exceeded quota: q, requested: pods=1,requests.cpu=200m, used: pods=4,requests.cpu=1, "
                "limited: pods=4,requests.cpu=1",
            ),
        ),
        FullQuota(),
    ),
    "a quota of limits that the old pod does not have": (
        ForbiddenError(
            CALL,
            Failure(403, "Forbidden", f"{FORBIDDEN}{OF_LIMITS}"),
        ),
        Denial(OF_LIMITS),
    ),
    "a quota that was lowered": (
        ForbiddenError(CALL, Failure(403, "Forbidden", f"{FORBIDDEN}{LOWERED}")),
        Denial(LOWERED),
    ),
}


@pytest.mark.parametrize(("error", "want"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_a_denial_only_where_it_is_about_the_pod(
    error: KubeError, want: Denial | FullQuota | Unknown
) -> None:
    assert read_error(error, raw_pod()) == want


# --- the account's bounds --------------------------------------------------------------------------------------------


def bounds() -> tuple[RawObject, RawObject]:
    """Return the policy and the binding that the sandbox and the chart install."""
    return next(pair for pair in build_admission_policies() if pair[0]["metadata"]["name"] == REPLACEMENT_TRIAL)


def test_the_installed_policy_and_binding_hold_the_account() -> None:
    policy, binding = bounds()
    assert why_policy_lets_through(policy, DEFAULT_NAMESPACE) == ""
    assert why_binding_lets_through(binding) == ""


USER: Final = trial_user(DEFAULT_NAMESPACE)
EVERY_POD: Final = bounds()[0]["spec"]["matchConstraints"]
POLICY_GAPS: Final[Mapping[str, tuple[RawObject, str]]] = {
    "another account": ({"matchConditions": []}, f"its matchConditions are not for {USER} alone"),
    "errors pass": ({"failurePolicy": "Ignore"}, "its failurePolicy is not Fail"),
    "parameters": ({"paramKind": {"kind": "ConfigMap"}}, "it has a paramKind"),
    "no rule": ({"matchConstraints": {}}, "its matchConstraints leave pods out"),
    "some namespaces": (
        {"matchConstraints": {**EVERY_POD, "namespaceSelector": {"matchLabels": {"a": "b"}}}},
        "its matchConstraints leave pods out",
    ),
    "another expression": ({"validations": [{"expression": "true"}]}, "it does not ask for"),
}


@pytest.mark.parametrize(("change", "want_words"), POLICY_GAPS.values(), ids=POLICY_GAPS)
def test_a_policy_that_lets_pods_through_is_told_apart(change: RawObject, want_words: str) -> None:
    policy, _ = bounds()
    reason = why_policy_lets_through({**policy, "spec": {**policy["spec"], **change}}, DEFAULT_NAMESPACE)
    assert want_words in reason


@pytest.mark.parametrize(
    ("change", "want_words"),
    [
        ({"policyName": "another"}, "it is for another policy"),
        ({"validationActions": ["Warn", "Audit"]}, "it does not Deny"),
        ({"paramRef": {"name": "p"}}, "it has a paramRef"),
        ({"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}, "its matchResources leave pods out"),
    ],
    ids=["policy", "actions", "parameters", "objects"],
)
def test_a_binding_that_lets_pods_through_is_told_apart(change: RawObject, want_words: str) -> None:
    _, binding = bounds()
    assert want_words in why_binding_lets_through({**binding, "spec": {**binding["spec"], **change}})


# --- the trial -------------------------------------------------------------------------------------------------------


class Server:
    """An API server with the account's bounds, a ReplicaSet and its Reservation; a test says what a dry run gets."""

    def __init__(self) -> None:
        policy, binding = bounds()
        template = build_template(raw_pod())
        self.objects: dict[str, RawObject | KubeError] = {
            "validatingadmissionpolicies": policy,
            "validatingadmissionpolicybindings": binding,
            "serviceaccounts": {},
            "replicasets": owner(),
            "reservations": {"spec": {"schedulerName": "default-scheduler", "tasks": [{"template": template}]}},
        }
        self.answer: KubeError | None = None
        self.impersonation_error: InputError | None = None
        self.dry_runs = 0
        self.user = ""

    def get(self, resource: Resource, _name: str, **_: object) -> RawObject:
        if resource.plural not in self.objects:
            raise NotFoundError(CALL, Failure(404, "NotFound", "it is not there"))
        found = self.objects[resource.plural]
        if isinstance(found, KubeError):
            raise found
        return dict(found)

    def impersonating(self, user: str, _connections: int) -> "Server":
        if self.impersonation_error is not None:
            raise self.impersonation_error
        self.user = user
        return self

    def within(self, _seconds: float) -> "Server":
        return self

    def create(self, _resource: Resource, body: RawObject, *, dry_run: bool, **_: object) -> RawObject:
        assert dry_run
        self.dry_runs += 1
        if self.answer is not None:
            raise self.answer
        return body

    def close(self) -> None:
        """Close nothing."""


class Tried:
    """A trial against a `Server`, on a clock that stands."""

    def __init__(self) -> None:
        self.server = Server()
        self.left_out: list[str] = []
        self.clock = FakeClock()
        client: Any = self.server
        self.trial = ReplacementTrial(client, self.clock, DEFAULT_NAMESPACE, self.left_out.append)

    def before_reservation(self) -> MoveReason | None:
        refusal = self.trial.before_reservation(raw_pod(), build_template(raw_pod()), "default-scheduler")
        return refusal.reason if refusal else None

    def before_eviction(self) -> MoveReason | None:
        reads: Any = self.server
        refusal = self.trial.before_eviction(raw_pod(), reads, reservation="place")
        return refusal.reason if refusal else None


DENIED: Final = ForbiddenError(CALL, Failure(403, "Forbidden", f"{FORBIDDEN}no"))
AWAY: Final = ServerError(CALL, Failure(500, "InternalError", 'failed calling webhook "a.b"'))
NO_RIGHT: Final = ForbiddenError(
    CALL, Failure(403, "Forbidden", 'User "u" cannot impersonate resource "serviceaccounts"')
)


def test_a_replacement_is_made_in_the_name_of_the_account() -> None:
    tried = Tried()
    assert tried.before_reservation() is None
    assert (tried.server.user, tried.server.dry_runs) == (trial_user(DEFAULT_NAMESPACE), 1)


def test_a_denial_keeps_the_pod_before_its_place_is_asked_for_and_before_its_eviction() -> None:
    tried = Tried()
    tried.server.answer = DENIED
    refused = MoveReason.REPLACEMENT_REFUSED
    assert (tried.before_reservation(), tried.before_eviction()) == (refused, refused)


def test_an_api_server_that_does_not_answer_holds_an_eviction_up_and_no_reservation() -> None:
    tried = Tried()
    tried.server.answer = AWAY
    assert tried.before_reservation() is None
    with pytest.raises(ServerError):
        tried.before_eviction()
    assert tried.left_out == []


def test_bounds_that_cannot_be_read_for_a_moment_leave_nothing_out() -> None:
    tried = Tried()
    policy = tried.server.objects["validatingadmissionpolicies"]
    tried.server.objects["validatingadmissionpolicies"] = AWAY
    with pytest.raises(ServerError):
        tried.before_eviction()
    tried.server.objects["validatingadmissionpolicies"] = policy
    tried.server.answer = DENIED
    assert tried.before_eviction() is MoveReason.REPLACEMENT_REFUSED


def test_an_eviction_that_a_budget_holds_up_is_asked_for_again_without_a_trial_for_a_while() -> None:
    tried = Tried()
    for _ in range(3):
        assert tried.before_eviction() is None
    assert tried.server.dry_runs == 1
    tried.clock.advance(31)
    assert tried.before_eviction() is None
    assert tried.server.dry_runs == 2


def test_without_the_right_to_act_as_the_account_the_trial_is_left_out_for_the_run() -> None:
    tried = Tried()
    tried.server.answer = NO_RIGHT
    assert (tried.before_reservation(), tried.before_eviction()) == (None, None)
    assert tried.server.dry_runs == 1
    assert tried.left_out == [NO_RIGHT.message]


def test_credentials_with_which_nothing_can_be_impersonated_leave_the_trial_out() -> None:
    tried = Tried()
    tried.server.impersonation_error = InputError("kubeconfig", "config", "a file that exists")
    assert (tried.before_reservation(), tried.before_eviction()) == (None, None)
    (reason,) = tried.left_out
    assert "a file that exists" in reason


@pytest.mark.parametrize("missing", ["validatingadmissionpolicies", "validatingadmissionpolicybindings"])
def test_without_policy_or_binding_no_pod_is_made(missing: str) -> None:
    tried = Tried()
    del tried.server.objects[missing]
    assert (tried.before_reservation(), tried.before_eviction()) == (None, None)
    assert (tried.server.dry_runs, len(tried.left_out)) == (0, 1)


def test_a_pod_whose_controller_is_not_known_is_evicted_and_that_is_logged() -> None:
    """As are those whose ReplicaSet is another by now."""
    tried = Tried()
    tried.server.objects["replicasets"] = {**owner(), "metadata": {**owner()["metadata"], "uid": "another"}}
    with structlog.testing.capture_logs() as lines:
        assert (tried.before_reservation(), tried.before_eviction()) == (None, None)
    (line,) = lines
    assert (line["event"], line["pod"]) == (telemetry.NOT_TRIED, "default/web-1")
    assert "another ReplicaSet has the name web by now" in line["reason"]


def test_a_full_quota_compares_what_the_controller_asks_for() -> None:
    tried = Tried()
    message = f"{FORBIDDEN}exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    tried.server.answer = ForbiddenError(CALL, Failure(403, "Forbidden", message))
    assert tried.before_reservation() is None
    grown = owner()
    grown["spec"]["template"]["spec"] = {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "2"}}}]}
    tried.server.objects["replicasets"] = grown
    assert tried.before_reservation() is MoveReason.REPLACEMENT_DIFFERS


@pytest.mark.parametrize("method", [None, MoveMethod.SURGE], ids=["eviction", "surge"])
def test_no_place_is_asked_for_where_the_next_pod_would_be_refused(method: MoveMethod | None) -> None:
    """A surge that waits for a pod that cannot be made holds its place for many minutes."""
    tried = Tried()
    tried.server.answer = DENIED
    pod = raw_pod()
    pod["spec"]["nodeName"] = "n1"
    client: Any = Server()
    client.objects["pods"] = pod
    move = PlannedMove(namespace="default", pod="web-1", pod_uid="uid", source="n1", target="n2", method=method)
    terms = PlaceTerms(timedelta(minutes=5), 1, None)
    eligibility: Any = None
    answer = reserve(client, PlanIdentity("plan", "plan-uid"), 0, move, terms, eligibility, tried.trial)
    assert (answer.created, answer.refusal) == (False, MoveReason.REPLACEMENT_REFUSED)
    assert client.dry_runs == 0


# --- what `berth doctor` finds ---------------------------------------------------------------------------------------


def test_doctor_finds_an_account_without_its_policy() -> None:
    server: Any = Server()
    assert why_not_tried(server, DEFAULT_NAMESPACE) == ""
    assert list(find_unbounded_account(server, DEFAULT_NAMESPACE)) == []
    del server.objects["validatingadmissionpolicies"]
    (violation,) = find_unbounded_account(server, DEFAULT_NAMESPACE)
    assert violation.target == f"serviceaccount {DEFAULT_NAMESPACE}/{REPLACEMENT_TRIAL}"
    assert violation.detail == f"there is no ValidatingAdmissionPolicy {REPLACEMENT_TRIAL}"


def test_doctor_finds_nothing_where_the_trial_is_switched_off() -> None:
    server: Any = Server()
    for kind in ("serviceaccounts", "validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        del server.objects[kind]
    assert list(find_unbounded_account(server, DEFAULT_NAMESPACE)) == []
    assert (
        why_not_tried(server, DEFAULT_NAMESPACE)
        == f"there is no ServiceAccount {DEFAULT_NAMESPACE}/{REPLACEMENT_TRIAL}"
    )
