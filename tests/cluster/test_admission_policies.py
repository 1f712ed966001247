"""The admission policies refuse what accounts do not need, and let through all that they do."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from account_calls import (
    ALLOWED,
    NAMESPACE,
    REFUSED,
    THEIR_TAINT,
    ApiTargets,
    Body,
    bystander,
    changed,
    is_refused,
    lease,
    placeholder,
    plans_reservation,
    registration,
    secret,
    tenants_pod,
    windows_reservation,
)
from berth_core.labels import PREEMPTABLE_LABEL, RESERVATION_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient, connect
from berth_kube.errors import AlreadyExistsError, ForbiddenError, InvalidObjectError, KubeError, NotFoundError
from berth_kube.resources import (
    ADMISSION_POLICIES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATIONS,
    SECRETS,
)
from berth_operator.reservation import manifests
from berth_sandbox.bootstrap import DESCHEDULER, OPERATOR
from berth_sandbox.sandbox import Sandbox
from cluster_objects import await_priority_class, build_reservation, label_owner, make_namespace, pod_template
from eviction_calls import ALLOWED_EVICTIONS, REFUSED_EVICTIONS, answered_evictions
from label_calls import (
    ALLOWED_LABELS,
    ANOTHER,
    KEPT,
    REFUSED_LABELS,
    annotated_pod,
    hashed_pod,
    idle_pod,
    labelled_pod,
    unasked_pod,
    uncontrolled_pod,
)
from waiting import eventually

pytestmark = pytest.mark.cluster

MADE = (
    (PODS, tenants_pod(), NAMESPACE),
    (PODS, idle_pod(), NAMESPACE),
    (PODS, labelled_pod(RESERVATION_LABEL, name="sent"), NAMESPACE),
    (PODS, hashed_pod(), NAMESPACE),
    (PODS, unasked_pod(), NAMESPACE),
    *((PODS, body, NAMESPACE) for body in KEPT),
    (PODS, annotated_pod("disrupted", "karpenter.sh/do-not-disrupt", "false"), NAMESPACE),
    (PODS, hashed_pod("goes"), NAMESPACE),
    (PODS, uncontrolled_pod(), NAMESPACE),
    (PODS, bystander(), DEFAULT_NAMESPACE),
    (PRIORITY_CLASSES, manifests.build_priority_class(7), None),
    (PRIORITY_CLASSES, changed(manifests.build_priority_class(9), "metadata.name", "somebodys-class"), None),
    (PODS, placeholder("held"), DEFAULT_NAMESPACE),
    (RESERVATIONS, build_reservation("theirs", cpu="1", owners=label_owner(app="any")), NAMESPACE),
    (RESERVATIONS, changed(plans_reservation("of-a-plan"), "metadata.ownerReferences", []), NAMESPACE),
    (RESERVATIONS, changed(windows_reservation("of-a-window"), "metadata.ownerReferences", []), NAMESPACE),
)
"""What the accounts act upon, in an order in which it can be made."""


def make_all(admin: KubeClient) -> None:
    for resource, body, namespace in MADE:
        admin.create(resource, body, namespace=namespace)
        if resource is PRIORITY_CLASSES:
            await_priority_class(admin, body["metadata"]["name"])


def remove_all(admin: KubeClient) -> None:
    for resource, body, namespace in reversed(MADE):
        with suppress(NotFoundError):
            grace = 0 if resource is PODS else None
            admin.delete(resource, body["metadata"]["name"], namespace=namespace, grace_seconds=grace)


@pytest.fixture(scope="module")
def targets(sandbox: Sandbox) -> Iterator[ApiTargets]:
    with ExitStack() as stack:
        admin = stack.enter_context(sandbox.connect())
        accounts = {
            name: stack.enter_context(connect(kubeconfig=str(sandbox.service_account_kubeconfig(name))))
            for name in (OPERATOR, DESCHEDULER)
        }
        make_namespace(admin, NAMESPACE)
        (node,) = sandbox.add_nodes(1, prefix="policies-node-")
        admin.merge_patch(NODES, node, {"spec": {"taints": [THEIR_TAINT]}})
        make_all(admin)
        stack.enter_context(without_pod_security(admin))
        stack.enter_context(answered_evictions(admin))
        targets = ApiTargets(node, {**accounts, ANOTHER: admin})
        # The last one of the file: the API server takes policies up in the order of their making.
        eventually("the policies are in force", lambda: is_refused(targets, "an event of another reporter"), seconds=60)
        yield targets
        remove_all(admin)
        admin.delete(NODES, node)


@contextmanager
def without_pod_security(admin: KubeClient) -> Iterator[None]:
    """Have Berth's own namespace take any pod meanwhile, as one that is not held to a Pod Security level."""
    level = "pod-security.kubernetes.io/enforce"
    was = admin.get(NAMESPACES, DEFAULT_NAMESPACE)["metadata"]["labels"][level]
    admin.merge_patch(NAMESPACES, DEFAULT_NAMESPACE, {"metadata": {"labels": {level: None}}})
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="1", hostNetwork=True)}
    pod["metadata"]["name"] = "on-the-network"

    def takes_any_pod() -> bool:
        try:
            admin.create(PODS, pod, namespace=DEFAULT_NAMESPACE, dry_run=True)
        except ForbiddenError:
            return False
        return True

    try:
        eventually("the namespace takes any pod", takes_any_pod, seconds=60)
        yield
    finally:
        admin.merge_patch(NAMESPACES, DEFAULT_NAMESPACE, {"metadata": {"labels": {level: was}}})
        eventually("the namespace is restricted again", lambda: not takes_any_pod(), seconds=60)


@pytest.mark.parametrize("case", [*REFUSED, *REFUSED_LABELS, *REFUSED_EVICTIONS])
def test_the_policies_refuse(targets: ApiTargets, case: str) -> None:
    act, told = (REFUSED | REFUSED_LABELS | REFUSED_EVICTIONS)[case]
    with pytest.raises(InvalidObjectError, match="ValidatingAdmissionPolicy") as refusal:
        act(targets)
    assert told in str(refusal.value)


@pytest.fixture
def used_up(targets: ApiTargets, sandbox: Sandbox) -> Iterator[ApiTargets]:
    """Yield the ground for a test that uses up what is there; it is there again for the others, whichever come next."""
    yield targets
    with sandbox.connect() as admin:
        remove_all(admin)
        make_all(admin)


def test_the_policies_let_accounts_do_what_they_need(used_up: ApiTargets) -> None:
    for case, act in (ALLOWED | ALLOWED_LABELS | ALLOWED_EVICTIONS).items():
        try:
            act(used_up)
        except AlreadyExistsError:
            continue  # an operator of other tests left it; the API server asks the policies before it looks for that
        except KubeError as error:
            raise AssertionError(f"{case}: {error}") from error


def test_a_pod_that_was_let_onto_lent_nodes_stays_one_that_leaves_them(used_up: ApiTargets) -> None:
    def labelled(value: str | None) -> Body:
        return {"metadata": {"labels": {PREEMPTABLE_LABEL: value}}}

    used_up[OPERATOR].merge_patch(PODS, "idle", labelled("true"), namespace=NAMESPACE)

    with pytest.raises(InvalidObjectError, match="may take the label"):
        used_up[ANOTHER].merge_patch(PODS, "idle", labelled(None), namespace=NAMESPACE)
    with pytest.raises(InvalidObjectError, match="may give a pod this label"):
        used_up[ANOTHER].merge_patch(PODS, "idle", labelled("false"), namespace=NAMESPACE)


def test_nobody_else_is_held_to_the_policies(targets: ApiTargets, sandbox: Sandbox) -> None:
    assert is_refused(targets, "another Lease")
    with sandbox.connect() as admin:
        admin.create(LEASES, lease("mine"), namespace=DEFAULT_NAMESPACE, dry_run=True)
        admin.create(SECRETS, secret("mine"), namespace=DEFAULT_NAMESPACE, dry_run=True)
        admin.create(MUTATING_WEBHOOKS, changed(registration(), "metadata.name", "mine"), dry_run=True)


def test_the_policies_are_well_typed(targets: ApiTargets, sandbox: Sandbox) -> None:
    assert is_refused(targets, "another Lease")
    with sandbox.connect() as admin:

        def policies() -> list[Body]:
            found: list[Body] = admin.list(ADMISSION_POLICIES).items
            return found

        def all_are_checked() -> bool:
            return all("typeChecking" in policy.get("status", {}) for policy in policies())

        eventually("the policies are type checked", all_are_checked, seconds=120)
        warnings = {
            policy["metadata"]["name"]: policy["status"]["typeChecking"].get("expressionWarnings", [])
            for policy in policies()
        }
    assert not any(warnings.values()), warnings
