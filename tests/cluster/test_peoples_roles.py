"""The roles for people give what they say and nothing else: asked by `auth can-i`, and done with real tokens."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from berth_core.clock import SystemClock
from berth_core.labels import QUEUE_GATE, RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_descheduler.migration.absent_programs import OPERATOR, SERVICE, why_absent
from berth_kube.client import KubeClient, connect
from berth_kube.errors import ConflictError, ForbiddenError, InvalidObjectError
from berth_kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DESCHEDULER_POLICIES,
    LEASES,
    MIGRATION_PLANS,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SUBJECT_ACCESS_REVIEWS,
    Resource,
)
from berth_sandbox.bootstrap import DESCHEDULER, request_token
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, label_owner, make_namespace, pod_template
from conventions.generate_copies import CHART
from reservation_stage import delete_if_there
from waiting import eventually

pytestmark = pytest.mark.cluster

RULES: Final[dict[str, Any]] = yaml.safe_load((CHART / "files" / "people-rules.yaml").read_text(encoding="utf-8"))
RUNNER_AND_APPROVER: Final = "runner-and-approver"
CALLERS: Final = {**RULES, RUNNER_AND_APPROVER: [*RULES["runner"], *RULES["approver"]]}
"""The rules of everyone who asks here: each role alone, and two that one caller may have."""

OWN: Final = "people-own"
OTHERS: Final = "people-others"
PLAN: Final = "people-proposed"
REQUESTED: Final = "people-requested"
AGGREGATED: Final = {"aggregate-to-view": "view", "aggregate-to-edit": "edit"}
"""The roles that are added to the cluster's own, and to which."""

IN_A_NAMESPACE: Final = {"editor", "aggregate-to-edit"}
"""The roles that are bound in one namespace here, as they are meant to be."""


@dataclass(frozen=True)
class Can:
    """What may be asked about; `namespace` is "" for all, or for what is in none."""

    verb: str
    resource: Resource
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.plural}/{self.subresource} in {self.namespace or 'all'}"


@dataclass(frozen=True)
class People:
    """Whom the roles are bound to."""

    admin: KubeClient
    clients: dict[str, KubeClient] = field(default_factory=dict)

    def can(self, role: str, asked: Can) -> bool:
        """Answer as `kubectl auth can-i --as` does."""
        resource = asked.resource
        attributes = {"verb": asked.verb, "group": resource.group, "resource": resource.plural}
        attributes |= {"namespace": asked.namespace, "subresource": asked.subresource}
        spec = {"user": user(role), "groups": ["system:authenticated"], "resourceAttributes": attributes}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(self.admin.create(SUBJECT_ACCESS_REVIEWS, body)["status"]["allowed"])


def user(role: str) -> str:
    return f"system:serviceaccount:{DEFAULT_NAMESPACE}:people-{role}"


@pytest.fixture(scope="module")
def people(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    folder = tmp_path_factory.mktemp("people")
    with ExitStack() as leaving:
        found = People(leaving.enter_context(sandbox.connect()))
        for namespace in (OWN, OTHERS):
            make_namespace(found.admin, namespace)
            leaving.callback(found.admin.delete, NAMESPACES, namespace)
        for role, rules in CALLERS.items():
            make_person(found.admin, leaving, role, rules)
            kubeconfig = kubeconfig_of(sandbox, found.admin, role, folder / role)
            found.clients[role] = leaving.enter_context(connect(kubeconfig=str(kubeconfig)))
        for role in CALLERS:
            eventually(f"the rights of {role} hold", partial(found.can, role, may_first(role)), seconds=60)
        # What may be read there comes to the cluster's own role in a second step: from another of its roles.
        read = Can("list", RESERVATIONS, OWN)
        eventually("who may write there may read", partial(found.can, "aggregate-to-edit", read), seconds=60)
        for name, spec in ((PLAN, proposed()), (REQUESTED, {"mode": "Approve"})):
            found.admin.create(MIGRATION_PLANS, plan(name, **spec))
            leaving.callback(delete_if_there, found.admin, MIGRATION_PLANS, name)
        refused = partial(is_refused, lambda: make_plan(found.clients["runner"], mode="Auto"))
        eventually("the admission policy is in force", refused, seconds=60)
        yield found


def may_first(role: str) -> Can:
    """Return what a role certainly gives."""
    return Can("create", RESERVATIONS, OWN) if role in IN_A_NAMESPACE else Can("list", MIGRATION_PLANS)


def make_person(admin: KubeClient, leaving: ExitStack, role: str, rules: list[Any]) -> None:
    """Make a role as the chart does, and an account that it is bound to."""
    name = f"people-{role}"
    labels = {f"rbac.authorization.k8s.io/{role}": "true"} if role in AGGREGATED else {}
    admin.create(CLUSTER_ROLES, {"metadata": {"name": name, "labels": labels}, "rules": rules})
    leaving.callback(admin.delete, CLUSTER_ROLES, name)
    admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=DEFAULT_NAMESPACE)
    leaving.callback(admin.delete, SERVICE_ACCOUNTS, name, namespace=DEFAULT_NAMESPACE)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": DEFAULT_NAMESPACE}
    bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGGREGATED.get(role, name)}
    body = {"metadata": {"name": name}, "roleRef": bound, "subjects": [subject]}
    if role in IN_A_NAMESPACE:
        admin.create(ROLE_BINDINGS, body, namespace=OWN)
    else:
        admin.create(CLUSTER_ROLE_BINDINGS, body)
        leaving.callback(admin.delete, CLUSTER_ROLE_BINDINGS, name)


def kubeconfig_of(sandbox: Sandbox, admin: KubeClient, role: str, path: Path) -> Path:
    body = yaml.safe_load(sandbox.service_account_kubeconfig(DESCHEDULER).read_text(encoding="utf-8"))
    body["users"][0]["user"] = {"token": request_token(admin, f"people-{role}")}
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    return path


def proposed() -> dict[str, Any]:
    moves = [{"namespace": "shop", "pod": "web-0", "source": "n1", "target": "n2", "wave": 1}]
    return {"mode": "Approve", "moves": moves, "predicted": {"nodes": 2, "moves": 1, "waves": 1}}


def plan(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - a field may be anything
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "MigrationPlan", "metadata": {"name": name}}
    return {**head, "spec": spec}


def make_plan(client: KubeClient, **spec: Any) -> None:  # noqa: ANN401 - a field may be anything
    """Have the API server judge a plan, and keep none."""
    client.create(MIGRATION_PLANS, plan("people-asked", **spec), dry_run=True)


def policy() -> dict[str, Any]:
    profile = {"name": "default", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "DeschedulerPolicy"}
    return {**head, "metadata": {"name": "people-policy"}, "spec": {"mode": "Plan", "profiles": [profile]}}


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except InvalidObjectError:
        return True
    return False


# --- auth can-i -------------------------------------------------------------------------------------------------------

KINDS: Final = (
    *(RESERVATIONS, RESERVATION_WINDOWS, MIGRATION_PLANS, DESCHEDULER_POLICIES, QUEUES, REVOCABLE_ZONES),
    *(PODS, NODES, SECRETS),
)
READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")
OF_NAMESPACES: Final = (RESERVATIONS, RESERVATION_WINDOWS, PODS, SECRETS)
ASKED: Final = {
    *(Can(verb, kind) for kind in KINDS for verb in (*READ, *WRITE)),
    *(Can(verb, kind, place) for kind in OF_NAMESPACES for place in (OWN, OTHERS) for verb in (*READ, *WRITE)),
    *(Can(verb, kind, OWN, "status") for kind in KINDS[:6] for verb in ("update", "patch")),
    *(Can(verb, kind, "", "status") for kind in KINDS[:6] for verb in ("update", "patch")),
}


def everywhere(verbs: tuple[str, ...], *kinds: Resource) -> set[Can]:
    """Return rights to kinds in the whole cluster, which hold in each namespace as well."""
    places = {kind: ("", OWN, OTHERS) if kind in OF_NAMESPACES else ("",) for kind in kinds}
    return {Can(verb, kind, place) for kind in kinds for verb in verbs for place in places[kind]}


READS: Final = everywhere(READ, *KINDS[:6])
MEASURES: Final = everywhere(("list",), PODS, NODES)
OWN_READS: Final = {Can(verb, kind, OWN) for verb in READ for kind in (RESERVATIONS, RESERVATION_WINDOWS)}
OWN_WRITES: Final = {Can(verb, kind, OWN) for verb in WRITE for kind in (RESERVATIONS, RESERVATION_WINDOWS)}
MAY: Final = {
    "viewer": READS | MEASURES,
    "editor": OWN_READS | OWN_WRITES,
    "policy-editor": READS | MEASURES | everywhere(WRITE, DESCHEDULER_POLICIES),
    "runner": READS | MEASURES | everywhere(("create",), MIGRATION_PLANS),
    "approver": READS | MEASURES | everywhere(("update", "patch"), MIGRATION_PLANS),
}
OF_THE_CLUSTER: Final = (PODS, SECRETS)
"""Kinds to which the cluster's own roles give rights."""


@pytest.mark.parametrize("role", MAY)
def test_a_role_gives_what_it_says_and_nothing_else(people: People, role: str) -> None:
    given = {asked for asked in ASKED if people.can(role, asked)}
    assert {str(one) for one in given} == {str(one) for one in MAY[role]}


@pytest.mark.parametrize(
    ("role", "wanted"), {"aggregate-to-view": READS, "aggregate-to-edit": OWN_READS | OWN_WRITES}.items()
)
def test_the_clusters_own_roles_get_what_is_a_namespaces_own(people: People, role: str, wanted: set[Can]) -> None:
    given = {asked for asked in ASKED if asked.resource not in OF_THE_CLUSTER and people.can(role, asked)}
    assert {str(one) for one in given} == {str(one) for one in wanted}


def test_every_role_of_the_chart_is_asked_about() -> None:
    assert set(RULES) == {*MAY, *AGGREGATED}


# --- done -------------------------------------------------------------------------------------------------------------


def test_a_viewer_sees_all_kinds_and_cannot_approve(people: People) -> None:
    viewer = people.clients["viewer"]
    for kind in (*KINDS[:6], NODES, PODS):
        viewer.list(kind)
    with pytest.raises(ForbiddenError, match="migrationplans"):
        viewer.merge_patch(MIGRATION_PLANS, PLAN, {"spec": {"approved": True}})


@pytest.mark.parametrize("role", ["editor", "aggregate-to-edit"])
def test_an_editor_reserves_in_one_namespace_and_writes_no_policy(people: People, role: str) -> None:
    editor, body = people.clients[role], build_reservation("people-room", cpu="1", owners=label_owner(app="any"))
    editor.create(RESERVATIONS, body, namespace=OWN, dry_run=True)
    with pytest.raises(ForbiddenError, match="reservations"):
        editor.create(RESERVATIONS, body, namespace=OTHERS, dry_run=True)
    with pytest.raises(ForbiddenError, match="deschedulerpolicies"):
        editor.create(DESCHEDULER_POLICIES, policy(), dry_run=True)


@pytest.mark.parametrize("role", ["viewer", "policy-editor", "runner", "approver"])
def test_who_waits_for_a_program_sees_whether_it_is_there(people: People, role: str) -> None:
    client, reports = people.clients[role], list[str]()
    for program, namespace in ((SERVICE, None), (OPERATOR, DEFAULT_NAMESPACE)):
        why = why_absent(client, SystemClock(), program, namespace=namespace, report=reports.append)
        assert why.startswith(f"no {program.name} ")
    assert reports == []
    with pytest.raises(ForbiddenError, match="leases"):
        client.list(LEASES, namespace=DEFAULT_NAMESPACE)


@pytest.mark.parametrize("role", ["editor", "aggregate-to-edit"])
def test_who_may_not_see_that_is_told_so(people: People, role: str) -> None:
    reports: list[str] = []
    client = people.clients[role]
    assert why_absent(client, SystemClock(), SERVICE, namespace=None, report=reports.append) == ""
    (report,) = reports
    assert report.startswith("it is not known whether the descheduler is at work: ")
    assert 'cannot list resource "leases"' in report


def test_an_editor_takes_no_pod_out_of_its_replica_set(people: People) -> None:
    """That is for who may carry out plans: others could keep pods that no controller counts."""
    labels = {"app": "web", TEMPLATE_HASH_LABEL: "5d4f8c7b9"}
    body = {"apiVersion": "v1", "kind": "Pod", **pod_template(labels, cpu="1")}
    body["metadata"]["name"] = "people-web"
    released = {"metadata": {"labels": {TEMPLATE_HASH_LABEL: RELEASED_HASH}}}
    people.admin.create(PODS, body, namespace=OWN)
    try:
        with pytest.raises(InvalidObjectError, match="may take a pod out of its ReplicaSet"):
            people.clients["aggregate-to-edit"].merge_patch(PODS, "people-web", released, namespace=OWN)
        people.admin.merge_patch(PODS, "people-web", released, namespace=OWN)
    finally:
        people.admin.delete(PODS, "people-web", namespace=OWN, grace_seconds=0)


def test_an_editor_takes_no_gate_of_a_queue_off_and_no_other_gate_is_kept_on(people: People) -> None:
    """Whoever may change queues may: so pods are freed once Berth is gone."""
    body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": "web"}, cpu="1")}
    body["metadata"]["name"] = "people-queued"
    body["spec"]["schedulingGates"] = [{"name": QUEUE_GATE}, {"name": "example.com/theirs"}]
    theirs_off = {"spec": {"schedulingGates": [{"name": QUEUE_GATE}]}}
    editor = people.clients["aggregate-to-edit"]
    people.admin.create(PODS, body, namespace=OWN)
    try:
        editor.merge_patch(PODS, "people-queued", theirs_off, namespace=OWN)
        with pytest.raises(InvalidObjectError, match="who may update queues may take the gate"):
            editor.merge_patch(PODS, "people-queued", {"spec": {"schedulingGates": None}}, namespace=OWN)
        people.admin.merge_patch(PODS, "people-queued", {"spec": {"schedulingGates": None}}, namespace=OWN)
    finally:
        people.admin.delete(PODS, "people-queued", namespace=OWN, grace_seconds=0)


def test_a_policy_editor_writes_policies_and_approves_nothing(people: People) -> None:
    editor = people.clients["policy-editor"]
    editor.create(DESCHEDULER_POLICIES, policy(), dry_run=True)
    with pytest.raises(ForbiddenError, match="migrationplans"):
        editor.merge_patch(MIGRATION_PLANS, PLAN, {"spec": {"approved": True}})


def test_a_runner_asks_for_plans_that_others_approve(people: People) -> None:
    runner = people.clients["runner"]
    make_plan(runner, mode="Plan")
    make_plan(runner, mode="Approve")
    for spec in ({"mode": "Auto"}, {"mode": "Approve", "approved": True}, {}):
        with pytest.raises(InvalidObjectError, match="who may not patch plans"):
            make_plan(runner, **spec)
    for by in ({"approvedBy": user("approver")}, {"abortedBy": user("approver")}):
        with pytest.raises(InvalidObjectError, match="with who approved or aborted it"):
            make_plan(runner, mode="Approve", **by)
    with pytest.raises(InvalidObjectError, match="in no other name than the caller's own"):
        make_plan(runner, mode="Approve", requestedBy="another")
    make_plan(runner, mode="Approve", requestedBy=user("runner"))
    with pytest.raises(ForbiddenError, match="migrationplans"):
        runner.merge_patch(MIGRATION_PLANS, PLAN, {"spec": {"approved": True}})


def test_who_may_not_cordon_nodes_asks_for_no_drain(people: People) -> None:
    drain = {"plugin": "NodeDrain", "args": {"nodes": ["n1"]}}
    make_plan(people.admin, mode="Approve", objective=drain)
    with pytest.raises(InvalidObjectError, match="who may not patch nodes may ask for no plan that drains nodes"):
        make_plan(people.clients["runner"], mode="Approve", objective=drain)


OWNER: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}
"""What a plan would go with: whoever deletes it would delete the plan, whose name is then free for another one."""


@pytest.mark.parametrize("role", ["runner", RUNNER_AND_APPROVER, "admin"])
def test_a_plan_has_no_owner_whoever_makes_or_changes_it(people: People, role: str) -> None:
    client = people.admin if role == "admin" else people.clients[role]
    owned = plan("people-owned", mode="Approve")
    owned["metadata"]["ownerReferences"] = [OWNER]
    with pytest.raises(InvalidObjectError, match="a plan has no owner"):
        client.create(MIGRATION_PLANS, owned, dry_run=True)
    if role != "runner":
        with pytest.raises(InvalidObjectError, match="a plan has no owner"):
            client.merge_patch(MIGRATION_PLANS, PLAN, {"metadata": {"ownerReferences": [OWNER]}})


def test_who_may_create_and_patch_plans_asks_and_decides_in_the_own_name(people: People) -> None:
    both = people.clients[RUNNER_AND_APPROVER]
    make_plan(both, mode="Auto", requestedBy=user(RUNNER_AND_APPROVER))
    make_plan(both, mode="Approve", approved=True, approvedBy=user(RUNNER_AND_APPROVER))
    forged = ({"requestedBy": "another"}, {"approved": True, "approvedBy": "another"})
    for by in forged:
        with pytest.raises(InvalidObjectError, match="in no other name than the caller's own"):
            make_plan(both, mode="Approve", **by)
    with pytest.raises(InvalidObjectError, match="in no other name than the caller's own"):
        both.merge_patch(MIGRATION_PLANS, PLAN, {"spec": {"aborted": True, "abortedBy": "another"}})
    make_plan(people.admin, mode="Approve", requestedBy="another")


def test_an_approval_by_kubectl_goes_to_the_plan_that_was_looked_at(people: People) -> None:
    """As the page shows it: with the uid and the resourceVersion of what was looked at."""
    approver, name = people.clients["approver"], "people-looked-at"
    first = people.admin.create(MIGRATION_PLANS, plan(name, **proposed()))["metadata"]
    try:
        people.admin.delete(MIGRATION_PLANS, name)
        second = people.admin.create(MIGRATION_PLANS, plan(name, **proposed()))["metadata"]
        for stale in (first, {**second, "uid": first["uid"]}, {**second, "resourceVersion": first["resourceVersion"]}):
            seen = {"uid": stale["uid"], "resourceVersion": stale["resourceVersion"]}
            with pytest.raises((ConflictError, InvalidObjectError)):
                approver.merge_patch(MIGRATION_PLANS, name, {"metadata": seen, "spec": {"approved": True}})
        assert not people.admin.get(MIGRATION_PLANS, name)["spec"]["approved"]
        seen = {"uid": second["uid"], "resourceVersion": second["resourceVersion"]}
        assert approver.merge_patch(MIGRATION_PLANS, name, {"metadata": seen, "spec": {"approved": True}})
    finally:
        delete_if_there(people.admin, MIGRATION_PLANS, name)


def test_an_approver_approves_and_aborts_in_the_own_name_and_makes_no_plan(people: People) -> None:
    approver = people.clients["approver"]
    change = partial(approver.merge_patch, MIGRATION_PLANS)
    with pytest.raises(ForbiddenError, match="migrationplans"):
        make_plan(approver, mode="Plan")
    with pytest.raises(ForbiddenError, match="migrationplans/status"):
        change(PLAN, {"status": {"phase": "Approved"}}, subresource="status")
    for by in ({"approved": True, "approvedBy": "somebody"}, {"aborted": True, "abortedBy": "somebody"}):
        with pytest.raises(InvalidObjectError, match="in no other name than the caller's own"):
            change(PLAN, {"spec": by})
    with pytest.raises(InvalidObjectError, match="may not fill in the moves"):
        change(REQUESTED, {"spec": {**proposed(), "approved": True}})
    with pytest.raises(InvalidObjectError, match="immutable"):
        change(PLAN, {"spec": {"moves": []}})
    with pytest.raises(InvalidObjectError, match="a plan has no owner"):
        change(PLAN, {"metadata": {"ownerReferences": [OWNER]}})
    for more in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}):
        with pytest.raises(InvalidObjectError, match="may change no label"):
            change(PLAN, {"metadata": more})
    with pytest.raises(InvalidObjectError, match="may change no label"):
        change(PLAN, {"metadata": {"finalizers": ["example.com/stays"]}})
    assert change(PLAN, {"spec": {"approved": True, "approvedBy": user("approver")}})["spec"]["approved"]
    assert change(REQUESTED, {"spec": {"approved": True}})["spec"]["approved"]
    assert change(PLAN, {"spec": {"aborted": True}})["spec"]["aborted"]


def test_who_may_create_and_patch_plans_is_not_held_to_that(people: People) -> None:
    make_plan(people.admin, mode="Auto")
    make_plan(people.admin, **proposed(), approved=True)
