"""What accounts may and may not do under the admission policies, as a table of calls.

The tests that try them are in `tests/cluster`.
"""
# ruff: noqa: ANN401 - fields of API objects may be anything

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from berth_core.labels import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    FREED_ANNOTATION,
    HANDOVER_GATE,
    HANDOVER_LABEL,
    HANDOVER_TAINT,
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    PLAN_LABEL,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    WINDOW_LABEL,
)
from berth_core.names import (
    DEFAULT_NAMESPACE,
    DESCHEDULER_LEASE,
    LEADER_LEASE,
    OPERATOR_LEASE,
    WEBHOOK_SECRET,
    priority_class_name,
)
from berth_core.reservations import ObjectReference, Reservation
from berth_kube.client import KubeClient
from berth_kube.errors import KubeError
from berth_kube.events import build_event
from berth_kube.resources import (
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATIONS,
    SECRETS,
    Resource,
)
from berth_operator.reservation import manifests
from berth_operator.settings import PlaceholderSettings
from berth_sandbox.bootstrap import DESCHEDULER, OPERATOR
from cluster_objects import build_reservation, label_owner, pod_template

Body = dict[str, Any]

NAMESPACE = "tenant-of-policies"
OTHER_GATE = "example.com/theirs"
THEIR_TOLERATION = {"key": "theirs", "operator": "Exists", "effect": "NoSchedule"}
THEIR_TAINT = {"key": "theirs", "value": "", "effect": "NoSchedule"}
SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
CLASS_VALUE = 7
CLASS = priority_class_name(CLASS_VALUE)
RESERVATION = Reservation.read(
    {
        **build_reservation("held", cpu="1", owners=label_owner(app="any")),
        "metadata": {"name": "held", "namespace": NAMESPACE, "uid": "an-uid", "resourceVersion": "1"},
    }
)


@dataclass(frozen=True)
class ApiTargets:
    """What the accounts act upon: a node and a pod of a tenant, and each account's own client."""

    node: str
    accounts: Mapping[str, KubeClient]

    def __getitem__(self, account: str) -> KubeClient:
        return self.accounts[account]


def tenants_pod() -> Body:
    body: Body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": "web"}, cpu="1")}
    body["metadata"] |= {"name": "web", "annotations": {"note": "theirs"}}
    body["spec"] |= {
        "schedulingGates": [{"name": OTHER_GATE}, {"name": HANDOVER_GATE}],
        "tolerations": [THEIR_TOLERATION],
    }
    return body


def probe() -> Body:
    return manifests.build_probe(RESERVATION, manifests.ANY_REGISTRATION, PlaceholderSettings())


def bystander() -> Body:
    """Return a pod of Berth's own namespace that holds no place."""
    body = probe()
    body["metadata"] = {"name": "bystander", "labels": {"app": "berth"}}
    body["spec"]["schedulingGates"] = [{"name": OTHER_GATE}]
    return body


def placeholder(name: str) -> Body:
    """Return a placeholder as the operator makes it, which no scheduler places."""
    (task,) = RESERVATION.spec.tasks
    body = manifests.build_placeholder(
        RESERVATION, task, 0, priority=7, deadline_seconds=600, settings=PlaceholderSettings()
    )
    body["metadata"]["name"] = name
    body["spec"]["schedulingGates"] = [manifests.handover_gate()]
    return body


def fence() -> Body:
    body = manifests.build_fence("no-such-node", "fence", seconds=60, settings=PlaceholderSettings())
    body["spec"] |= {"priorityClassName": CLASS, "priority": CLASS_VALUE}
    return body


def plans_reservation(name: str) -> Body:
    body = build_reservation(name, cpu="1", owners=label_owner(app="any"))
    controller = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "MigrationPlan",
        "name": "plan",
        "uid": "00000000-0000-0000-0000-000000000000",
        "controller": True,
    }
    body["metadata"] |= {"labels": {PLAN_LABEL: "plan"}, "ownerReferences": [controller]}
    return body


def windows_reservation(name: str) -> Body:
    body = plans_reservation(name)
    body["metadata"] |= {"labels": {WINDOW_LABEL: "nightly"}}
    body["metadata"]["ownerReferences"][0] |= {"kind": "ReservationWindow", "name": "nightly"}
    body["spec"] = {**body["spec"], "expires": "2099-01-01T00:00:00Z"}
    del body["spec"]["ttl"]
    return body


def changed(body: Body, path: str, value: object) -> Body:
    """Return a copy of an object with one field set; numbers in the path are indexes."""
    body = deepcopy(body)
    *parents, last = path.split(".")
    found: Any = body
    for part in parents:
        found = found[int(part)] if isinstance(found, list) else found.setdefault(part, {})
    found[last] = value
    return body


ApiCall = Callable[[ApiTargets], object]


def create(
    account: str, resource: Resource, body: Body, namespace: str | None = None, *, dry_run: bool = False
) -> ApiCall:
    return lambda targets: targets[account].create(resource, body, namespace=namespace, dry_run=dry_run)


def patch_pod(account: str, body: Body, *, of: tuple[str, str] = (NAMESPACE, "web"), status: bool = False) -> ApiCall:
    subresource = "status" if status else ""
    return lambda targets: targets[account].merge_patch(PODS, of[1], body, namespace=of[0], subresource=subresource)


def patch_node(account: str, body: Body) -> ApiCall:
    return lambda targets: targets[account].merge_patch(NODES, targets.node, body)


def taint(key: str, effect: str = "NoSchedule", *others: Body) -> Body:
    return {"spec": {"taints": [*(others or (THEIR_TAINT,)), {"key": key, "value": "1", "effect": effect}]}}


def without_end(body: Body) -> Body:
    return {**body, "spec": {name: value for name, value in body["spec"].items() if name != "expires"}}


def patch_reservation(name: str, body: Body, *, by: str = DESCHEDULER) -> ApiCall:
    return lambda targets: targets[by].merge_patch(RESERVATIONS, name, body, namespace=NAMESPACE)


def lease(name: str) -> Body:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}


def secret(name: str, type_: str = "Opaque", **annotations: str) -> Body:
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    metadata = {"name": name, "annotations": {f"kubernetes.io/{key}": value for key, value in notes.items()}}
    return {"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": metadata}


def event(reporter: str) -> Body:
    web = ObjectReference(api_version="v1", kind="Pod", namespace=NAMESPACE, name="web", uid="any")
    return build_event(web, "Tested", "tested", "Normal", reporter)


def registration(**changes: Any) -> Body:
    body = manifests.build_webhook_configuration(
        client_config={"url": "https://127.0.0.1:9443/review/x"},
        namespaces=[NAMESPACE],
        own_namespace=DEFAULT_NAMESPACE,
        timeout_seconds=5,
    )
    body["webhooks"][0] |= changes
    return body


def rule(**changes: Any) -> list[Body]:
    return [registration()["webhooks"][0]["rules"][0] | changes]


def hold(path: str, value: object) -> ApiCall:
    """Return the call that creates a placeholder with one field set."""
    body = changed(changed(placeholder("wrong"), "spec.schedulingGates", []), path, value)
    return create(OPERATOR, PODS, body, DEFAULT_NAMESPACE)


def build_class(**changes: Any) -> Body:
    return manifests.build_priority_class(8) | changes


OWN_LABELS = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "an-uid", MANAGED_LABEL: MANAGED_BY_OPERATOR}
CONTAINER = "spec.containers.0"

REFUSED: dict[str, tuple[ApiCall, str]] = {
    "a pod in a tenant's namespace": (
        create(OPERATOR, PODS, changed(placeholder("wrong"), "metadata.namespace", NAMESPACE)),
        "only be created as a dry run",
    ),
    "a pod in kube-system": (
        create(OPERATOR, PODS, changed(placeholder("wrong"), "metadata.namespace", "kube-system")),
        "only be created as a dry run",
    ),
    "a pod of our namespace that holds no place": (
        create(OPERATOR, PODS, changed(placeholder("wrong"), "metadata.labels", {}), DEFAULT_NAMESPACE),
        "labelled as placeholder or fence",
    ),
    "a pod that the webhook's Service would find": (
        hold("metadata.labels", {**OWN_LABELS, "app.kubernetes.io/component": "operator"}),
        "no label by which a Service",
    ),
    "another image": (hold(f"{CONTAINER}.image", "evil"), "of a configured image"),
    "a command": (hold(f"{CONTAINER}.command", ["sh"]), "runs nothing else"),
    "a variable from a Secret": (
        hold(f"{CONTAINER}.env", [{"name": "A", "value": "B"}]),
        "sees nothing",
    ),
    "a hook": (hold(f"{CONTAINER}.lifecycle", {"postStart": {"exec": {"command": ["sh"]}}}), "runs nothing else"),
    "a second container": (
        hold("spec.containers", [*placeholder("x")["spec"]["containers"], {"name": "b", "image": "evil"}]),
        "one container",
    ),
    "a volume of a Secret": (
        hold("spec.volumes", [{"name": "v", "secret": {"secretName": WEBHOOK_SECRET}}]),
        "no volume",
    ),
    "a path of the node": (hold("spec.volumes", [{"name": "v", "hostPath": {"path": "/"}}]), "no volume"),
    "a fence on the node's network": (
        create(OPERATOR, PODS, changed(fence(), "spec.hostNetwork", value=True), DEFAULT_NAMESPACE),
        "no part in its node",
    ),
    "the node's network": (hold("spec.hostNetwork", value=True), "no part in its node"),
    "a node without a scheduler": (hold("spec.nodeName", "any"), "no part in its node"),
    "a first container": (
        hold("spec.initContainers", [{"name": "b", "image": "evil"}]),
        "no further container",
    ),
    "another account": (hold("spec.serviceAccountName", DESCHEDULER), "no account"),
    "a token": (hold("spec.automountServiceAccountToken", value=True), "no token"),
    "a privileged container": (
        hold(f"{CONTAINER}.securityContext", {"privileged": True}),
        "no privilege",
    ),
    "root": (hold("spec.securityContext", {"runAsUser": 0}), "no privilege"),
    "an image of another's pod": (
        lambda targets: targets[OPERATOR].json_patch(
            PODS, "web", [{"op": "add", "path": "/spec/containers/0/image", "value": "evil"}], namespace=NAMESPACE
        ),
        "only tolerations, scheduling gates",
    ),
    "an image of another's pod, by the descheduler": (
        lambda targets: targets[DESCHEDULER].json_patch(
            PODS, "web", [{"op": "add", "path": "/spec/containers/0/image", "value": "evil"}], namespace=NAMESPACE
        ),
        "only scheduling gates",
    ),
    "an image of a placeholder": (
        lambda targets: targets[OPERATOR].json_patch(
            PODS,
            "held",
            [{"op": "add", "path": "/spec/containers/0/image", "value": "evil"}],
            namespace=DEFAULT_NAMESPACE,
        ),
        "only tolerations, scheduling gates",
    ),
    "a node selector of a gated pod": (
        patch_pod(OPERATOR, {"spec": {"nodeSelector": {"a": "b"}}}),
        "only tolerations, scheduling gates",
    ),
    "a deadline of another's pod": (
        patch_pod(OPERATOR, {"spec": {"activeDeadlineSeconds": 1}}),
        "only tolerations, scheduling gates",
    ),
    "a toleration of another's taint": (
        patch_pod(OPERATOR, {"spec": {"tolerations": [THEIR_TOLERATION, {"key": "other", "operator": "Exists"}]}}),
        "of tolerations only",
    ),
    "a toleration, by the descheduler": (
        patch_pod(DESCHEDULER, {"spec": {"tolerations": [THEIR_TOLERATION, manifests.handover_toleration()]}}),
        "only scheduling gates",
    ),
    "another's scheduling gate": (
        patch_pod(OPERATOR, {"spec": {"schedulingGates": [{"name": HANDOVER_GATE}]}}),
        "of scheduling gates only",
    ),
    "another's scheduling gate, by the descheduler": (
        patch_pod(DESCHEDULER, {"spec": {"schedulingGates": [{"name": HANDOVER_GATE}]}}),
        "of scheduling gates only",
    ),
    "another's label of a pod": (patch_pod(OPERATOR, {"metadata": {"labels": {"app": "other"}}}), "of labels only"),
    "another's label taken away": (patch_pod(OPERATOR, {"metadata": {"labels": {"app": None}}}), "of labels only"),
    "the label of a placeholder on another pod": (
        patch_pod(OPERATOR, {"metadata": {"labels": {PLACEHOLDER_LABEL: "true"}}}, of=(DEFAULT_NAMESPACE, "bystander")),
        "of labels only",
    ),
    "another's annotation of a pod": (
        patch_pod(OPERATOR, {"metadata": {"annotations": {"note": None}}}),
        "of annotations only",
    ),
    "an annotation of a pod, by the descheduler": (
        patch_pod(DESCHEDULER, {"metadata": {"annotations": {SLOT_ANNOTATION: "x"}}}),
        "of a pod's annotations only",
    ),
    "a finalizer of a pod": (patch_pod(OPERATOR, {"metadata": {"finalizers": ["a.b/c"]}}), "owners and finalizers"),
    "a pod's phase": (patch_pod(OPERATOR, {"status": {"phase": "Failed"}}, status=True), "only nominatedNodeName"),
    "a pod's address": (
        patch_pod(OPERATOR, {"status": {"podIPs": [{"ip": "10.0.0.1"}], "podIP": "10.0.0.1"}}, status=True),
        "only nominatedNodeName",
    ),
    "a label with a pod's status": (
        patch_pod(OPERATOR, {"metadata": {"labels": {"app": "other"}}}, status=True),
        "with a pod's status",
    ),
    "a program's pod deleted": (
        lambda targets: targets[OPERATOR].delete(PODS, "bystander", namespace=DEFAULT_NAMESPACE),
        "only placeholders and fences",
    ),
    "another's taint taken off": (
        patch_node(OPERATOR, {"spec": {"taints": None}}),
        "of taints only berth.volcano.sh/handover",
    ),
    "the descheduler's taint, by the operator": (
        patch_node(OPERATOR, taint("berth.volcano.sh/room")),
        "of taints only",
    ),
    "a guard that ends pods": (patch_node(OPERATOR, taint(HANDOVER_TAINT, "NoExecute")), "ends pods"),
    "a node cordoned": (patch_node(OPERATOR, {"spec": {"unschedulable": True}}), "only taints may be changed"),
    "a node's label": (patch_node(OPERATOR, {"metadata": {"labels": {"a": "b"}}}), "may not be changed"),
    "a node's annotation": (patch_node(OPERATOR, {"metadata": {"annotations": {"a": "b"}}}), "may not be changed"),
    "another's taint, by the descheduler": (patch_node(DESCHEDULER, taint("other")), "of taints only"),
    "another's taint taken off, by the descheduler": (
        patch_node(DESCHEDULER, {"spec": {"taints": [{"key": "berth.volcano.sh/freed", "effect": "NoSchedule"}]}}),
        "of taints only",
    ),
    "a drain that ends pods": (patch_node(DESCHEDULER, taint("berth.volcano.sh/draining", "NoExecute")), "ends pods"),
    "a node cordoned, by the descheduler": (
        patch_node(DESCHEDULER, {"spec": {"unschedulable": True}}),
        "only taints may be changed",
    ),
    "a node's role, by the descheduler": (
        patch_node(DESCHEDULER, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        "of a node's labels only",
    ),
    "a node's annotation, by the descheduler": (
        patch_node(DESCHEDULER, {"metadata": {"annotations": {"projectcalico.org/IPv4Address": "10.0.0.1"}}}),
        "of a node's annotations only",
    ),
    "a PriorityClass of another name": (
        create(OPERATOR, PRIORITY_CLASSES, changed(build_class(), "metadata.name", "mine")),
        "only classes of placeholders",
    ),
    "a PriorityClass that preempts": (
        create(OPERATOR, PRIORITY_CLASSES, build_class(preemptionPolicy="PreemptLowerPriority")),
        "never preempt",
    ),
    "a PriorityClass for everybody": (
        create(OPERATOR, PRIORITY_CLASSES, build_class(globalDefault=True)),
        "not the default",
    ),
    "another PriorityClass deleted": (
        lambda targets: targets[OPERATOR].delete(PRIORITY_CLASSES, "somebodys-class"),
        "only classes of placeholders",
    ),
    "another webhook": (
        create(OPERATOR, MUTATING_WEBHOOKS, changed(registration(), "metadata.name", "mine")),
        "only the registrations",
    ),
    "a webhook of another name in our registration": (
        create(OPERATOR, MUTATING_WEBHOOKS, registration(name="a.b.example")),
        "with their webhooks",
    ),
    "a webhook for Secrets": (
        create(OPERATOR, MUTATING_WEBHOOKS, registration(rules=rule(resources=["secrets"]))),
        "only be called for the creation of pods",
    ),
    "a webhook for changes of pods": (
        create(OPERATOR, MUTATING_WEBHOOKS, registration(rules=rule(operations=["CREATE", "UPDATE"]))),
        "only be called for the creation of pods",
    ),
    "a webhook for every namespace": (
        create(OPERATOR, MUTATING_WEBHOOKS, registration(namespaceSelector={})),
        "in namespaces that are named",
    ),
    "a webhook that stops all pods": (
        create(OPERATOR, MUTATING_WEBHOOKS, registration(failurePolicy="Fail")),
        "keep no pod waiting",
    ),
    "a webhook elsewhere": (
        create(OPERATOR, MUTATING_WEBHOOKS, registration(clientConfig={"url": "https://evil.example/x"})),
        "own Service or address",
    ),
    "a webhook at another Service": (
        create(
            OPERATOR,
            MUTATING_WEBHOOKS,
            registration(clientConfig={"service": {"name": "evil", "namespace": NAMESPACE}}),
        ),
        "own Service or address",
    ),
    "another Secret": (create(OPERATOR, SECRETS, secret("mine"), DEFAULT_NAMESPACE), "only the Secret"),
    "a token of the other account": (
        create(
            OPERATOR,
            SECRETS,
            secret(
                WEBHOOK_SECRET,
                "kubernetes.io/service-account-token",
                **{"service_account.name": DESCHEDULER},
            ),
            DEFAULT_NAMESPACE,
        ),
        "of the type Opaque",
    ),
    "another Lease": (create(OPERATOR, LEASES, lease("mine"), DEFAULT_NAMESPACE), "only the Lease"),
    "another Lease, by the descheduler": (
        create(DESCHEDULER, LEASES, lease(OPERATOR_LEASE), DEFAULT_NAMESPACE),
        "only the Leases",
    ),
    "an event of another reporter, by the operator": (create(OPERATOR, EVENTS, event("kubelet")), "only events"),
    "an event of another reporter": (create(DESCHEDULER, EVENTS, event("kubelet")), "only events"),
    "an eviction of whoever has the name": (
        lambda targets: evict(targets, NAMESPACE, "web", uid=""),
        "only be evicted by its uid",
    ),
    "an eviction without grace": (
        lambda targets: evict(targets, NAMESPACE, "web", grace_seconds=0),
        "with its own grace period",
    ),
    "an eviction of a program of ours": (
        lambda targets: evict(targets, DEFAULT_NAMESPACE, "bystander"),
        "outside Berth's own namespace",
    ),
    "a Reservation of no plan": (
        create(DESCHEDULER, RESERVATIONS, build_reservation("x", cpu="1", owners=label_owner(app="any")), NAMESPACE),
        "only Reservations of a plan",
    ),
    "a Reservation of nobody's plan": (
        create(DESCHEDULER, RESERVATIONS, changed(plans_reservation("x"), "metadata.ownerReferences", []), NAMESPACE),
        "controlled by its plan",
    ),
    "a tenant's Reservation changed": (patch_reservation("theirs", {"spec": {"ttl": "20m"}}), "only Reservations"),
    "a tenant's Reservation deleted": (
        lambda targets: targets[DESCHEDULER].delete(RESERVATIONS, "theirs", namespace=NAMESPACE),
        "only Reservations",
    ),
    "a Reservation of no window": (
        create(OPERATOR, RESERVATIONS, plans_reservation("x"), NAMESPACE),
        "only Reservations that a ReservationWindow or a Queue controls",
    ),
    "a window's Reservation without an end": (
        create(OPERATOR, RESERVATIONS, without_end(windows_reservation("x")), NAMESPACE),
        "a Reservation of a window or a queue has an end",
    ),
    "a tenant's Reservation ended by the operator": (
        patch_reservation("theirs", {"spec": {"ttl": "20m"}}, by=OPERATOR),
        "only Reservations of a ReservationWindow or a Queue",
    ),
    "a label of a window's Reservation": (
        patch_reservation("of-a-window", {"metadata": {"labels": {"a": "b"}}}, by=OPERATOR),
        "only the end may be changed",
    ),
    "fewer places of a plan": (patch_reservation("of-a-plan", {"spec": {"minAvailable": 1}}), "only its time"),
    "a Reservation given to another": (
        patch_reservation("of-a-plan", {"metadata": {"labels": {"a": "b"}}}),
        "only its time",
    ),
}

ALLOWED: dict[str, ApiCall] = {
    "a placeholder": create(OPERATOR, PODS, placeholder("another"), DEFAULT_NAMESPACE),
    "any pod as a dry run in a tenant's namespace": create(
        OPERATOR, PODS, changed(tenants_pod(), "metadata.name", "asked"), NAMESPACE, dry_run=True
    ),
    "a probe": create(OPERATOR, PODS, probe(), DEFAULT_NAMESPACE, dry_run=True),
    "a slot noted, labelled and tolerated": patch_pod(
        OPERATOR,
        {
            "metadata": {
                "labels": {RESERVATION_LABEL: "u", HANDOVER_LABEL: "true"},
                "annotations": {SLOT_ANNOTATION: "web/0/node"},
            },
            "spec": {"tolerations": [THEIR_TOLERATION, manifests.handover_toleration()]},
        },
    ),
    "a nomination": patch_pod(OPERATOR, {"status": {"nominatedNodeName": "node"}}, status=True),
    "a nomination taken back": patch_pod(OPERATOR, {"status": {"nominatedNodeName": None}}, status=True),
    "our gate taken off, by the descheduler": patch_pod(
        DESCHEDULER, {"spec": {"schedulingGates": [{"name": OTHER_GATE}]}}
    ),
    "labels and note taken off": patch_pod(
        OPERATOR,
        {
            "metadata": {
                "labels": {RESERVATION_LABEL: None, HANDOVER_LABEL: None},
                "annotations": {SLOT_ANNOTATION: None},
            }
        },
    ),
    "an earlier end of a placeholder": patch_pod(
        OPERATOR, {"spec": {"activeDeadlineSeconds": 5}}, of=(DEFAULT_NAMESPACE, "held")
    ),
    "our gate taken off a placeholder": patch_pod(
        OPERATOR, {"spec": {"schedulingGates": None}}, of=(DEFAULT_NAMESPACE, "held")
    ),
    "a guard": patch_node(OPERATOR, taint(HANDOVER_TAINT)),
    "a guard taken off, by the descheduler": patch_node(DESCHEDULER, {"spec": {"taints": [THEIR_TAINT]}}),
    "a mark of a freed node": patch_node(
        DESCHEDULER,
        {
            "metadata": {
                "labels": {COOLING_LABEL: "true"},
                "annotations": {
                    FREED_ANNOTATION: "{}",
                    LAST_DEFRAGMENTED_ANNOTATION: "now",
                    LAST_MOVED_ANNOTATION: "now",
                    COOLING_UNTIL_ANNOTATION: "then",
                    SCALE_DOWN: "false",
                },
            },
            **taint("berth.volcano.sh/freed", "PreferNoSchedule"),
        },
    ),
    "a mark taken off": patch_node(
        DESCHEDULER,
        {"metadata": {"annotations": {FREED_ANNOTATION: None, SCALE_DOWN: None}}, "spec": {"taints": [THEIR_TAINT]}},
    ),
    "a class of placeholders": create(OPERATOR, PRIORITY_CLASSES, build_class(), dry_run=True),
    "our registration": create(OPERATOR, MUTATING_WEBHOOKS, registration(), dry_run=True),
    "our registration at our Service": create(
        OPERATOR,
        MUTATING_WEBHOOKS,
        registration(clientConfig={"service": {"name": "berth-webhook", "namespace": DEFAULT_NAMESPACE}}),
        dry_run=True,
    ),
    "our Secret": create(OPERATOR, SECRETS, secret(WEBHOOK_SECRET), DEFAULT_NAMESPACE, dry_run=True),
    "our Lease": create(OPERATOR, LEASES, lease(OPERATOR_LEASE), DEFAULT_NAMESPACE, dry_run=True),
    "the run's Lease": create(DESCHEDULER, LEASES, lease(DESCHEDULER_LEASE), DEFAULT_NAMESPACE, dry_run=True),
    "the leader's Lease": create(DESCHEDULER, LEASES, lease(LEADER_LEASE), DEFAULT_NAMESPACE, dry_run=True),
    "an event": create(OPERATOR, EVENTS, event(OPERATOR), dry_run=True),
    "an event, by the descheduler": create(DESCHEDULER, EVENTS, event(DESCHEDULER), dry_run=True),
    "a plan's Reservation": create(DESCHEDULER, RESERVATIONS, plans_reservation("new"), NAMESPACE, dry_run=True),
    "more time for a plan's Reservation": patch_reservation("of-a-plan", {"spec": {"ttl": "20m"}}),
    "a plan's Reservation deleted": lambda targets: targets[DESCHEDULER].delete(
        RESERVATIONS, "of-a-plan", namespace=NAMESPACE
    ),
    "a window's Reservation": create(OPERATOR, RESERVATIONS, windows_reservation("new"), NAMESPACE, dry_run=True),
    "another end of a window's Reservation": patch_reservation(
        "of-a-window", {"spec": {"expires": "2098-01-01T00:00:00Z"}}, by=OPERATOR
    ),
    "a fence": create(OPERATOR, PODS, fence(), DEFAULT_NAMESPACE),
    "a fence deleted": lambda targets: targets[OPERATOR].delete(
        PODS, "fence", namespace=DEFAULT_NAMESPACE, grace_seconds=0
    ),
    "a placeholder deleted": lambda targets: targets[OPERATOR].delete(
        PODS, "another", namespace=DEFAULT_NAMESPACE, grace_seconds=0
    ),
    "an eviction": lambda targets: evict(targets, NAMESPACE, "web"),
}
"""In an order in which each is possible."""


def evict(
    targets: ApiTargets, namespace: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None
) -> None:
    """Evict a pod by its uid, or by the one that is given."""
    if uid is None:
        uid = targets[DESCHEDULER].get(PODS, name, namespace=namespace)["metadata"]["uid"]
    targets[DESCHEDULER].evict(namespace, name, uid=uid, grace_seconds=grace_seconds)


def is_refused(targets: ApiTargets, case: str) -> bool:
    try:
        REFUSED[case][0](targets)
    except KubeError as error:
        return REFUSED[case][1] in str(error)
    return False
