"""Pure builders of the objects that the operator creates."""

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from berth_core import (
    AWAITS_CAPACITY_LABEL,
    BEST_EFFORT_LABEL,
    CHOSEN_NODE_ANNOTATION,
    CONTROL_PLANE_KEYS,
    DAEMON_POD_LABEL,
    FENCE_CONFIG_MAP,
    FENCE_LABEL,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    INDEX_ANNOTATION,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    PREFIX,
    PROBE_LABEL,
    PROBE_REGISTRATION_LABEL,
    RESERVATION_LABEL,
    RESERVATION_NAME_ANNOTATION,
    ROOM_TAINT,
    SLOT_ANNOTATION,
    STANDING_FENCE_LABEL,
    SUCCESSOR_LABEL,
    TASK_ANNOTATION,
    VERSION_ANNOTATION,
    WEBHOOK_CONFIGURATION,
    NodeSelectorTerm,
    PodSpec,
    Reservation,
    ReservationTask,
    effective_requests,
    parse_quantity,
    placeholder_name,
    priority_class_name,
    probe_name,
    room_taint_value,
)
from berth_core.labels import HANDOVER_LABEL
from berth_operator.reservation.assignment import Assignment
from berth_operator.schedulers.volcano import scheduler_of
from berth_operator.settings import PlaceholderSettings

Body = dict[str, Any]

# The user of the pause image.
_NOBODY_UID: Final = 65535
# `HighestUserDefinablePriority` in kubernetes, pkg/apis/scheduling/types.go: all above is for system classes.
_HIGHEST_USER_PRIORITY: Final = 1_000_000_000
FENCE_PRIORITY: Final = _HIGHEST_USER_PRIORITY
"""Pods of user priority cannot preempt a fence; system pods can, as they must get in."""
_DROPPED_SPEC_FIELDS: Final = frozenset(
    {
        *("serviceAccountName", "serviceAccount", "imagePullSecrets", "volumes", "ephemeralContainers", "hostAliases"),
        *("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers", "nodeName", "os"),
        *("priority", "preemptionPolicy"),
    }
)
"""Fields of a template that a placeholder lacks; `priority` and `preemptionPolicy` follow from its class."""
_DROPPED_METADATA: Final = frozenset(
    ("creationTimestamp", "finalizers", "generateName", "ownerReferences", "resourceVersion")
)
"""Fields that programs write into a template's metadata, and that no new pod has."""
_PIN_BYTES: Final = 250
"""Bytes of a node term besides the node's name, including the exclusion of the control plane."""
_MISSING_VOLUME: Final = "missing"
_COMPUTE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_ALWAYS_STATED: Final = ("cpu", "memory")
"""What an idle container states even as zero: a LimitRange sets its defaults where nothing is stated."""
_LEAST_MEMORY_LIMIT: Final = "16Mi"
"""Container runtimes start nothing below: CRI-O wants 12Mi, and runc needs some before the pause process runs."""


def _restricted_pod_security() -> Body:
    # What the profile Restricted of the Pod Security Standards demands, for clusters that enforce it in Berth's
    # namespace.
    return {"runAsNonRoot": True, "runAsUser": _NOBODY_UID, "seccompProfile": {"type": "RuntimeDefault"}}


def _restricted_container_security() -> Body:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def build_placeholder(
    reservation: Reservation,
    task: ReservationTask,
    index: int,
    *,
    priority: int,
    deadline_seconds: int | None,
    settings: PlaceholderSettings,
    excluded_nodes: Iterable[str] | None = (),
    node: str = "",
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
) -> Body:
    """Return the pod that holds one slot, once the chosen `node` has room if one is given.

    It has the template's requests and constraints, and nothing else of it. The kubelet ends it after
    `deadline_seconds`, None for never. It goes neither to nodes that are labelled as control plane nor to
    `excluded_nodes`; with None it may go to all of them. Rules add `labels` and `annotations`.
    """
    meta = reservation.metadata
    body: Body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": placeholder_name(meta.name, meta.uid, task.name, index),
            "namespace": settings.namespace,
            # None of the owner's labels: a Service would send it requests, a ReplicaSet adopt it, and a disruption
            # budget count it.
            "labels": {
                PLACEHOLDER_LABEL: "true",
                RESERVATION_LABEL: meta.uid,
                MANAGED_LABEL: MANAGED_BY_OPERATOR,
                **({AWAITS_CAPACITY_LABEL: "true"} if node else {}),
                **labels,
            },
            "annotations": {
                RESERVATION_NAME_ANNOTATION: reservation.key,
                TASK_ANNOTATION: task.name,
                INDEX_ANNOTATION: str(index),
                **({CHOSEN_NODE_ANNOTATION: node} if node else {}),
                **annotations,
            },
        },
        "spec": {
            **_placeholder_spec(reservation, task, settings, excluded_nodes, (node,) if node else task.node_names),
            **_priority_fields(priority),
        },
    }
    if deadline_seconds is not None:
        # The API server refuses values below 1.
        body["spec"]["activeDeadlineSeconds"] = max(1, deadline_seconds)
    return body


def build_successor(body: Body, reservation: Reservation, assignment: Assignment, predecessor_uid: str) -> Body:
    """Return the body of a placeholder's successor, which is gated and tolerates the guard."""
    name = placeholder_name(
        reservation.metadata.name, reservation.metadata.uid, assignment.task, assignment.index, predecessor_uid
    )
    metadata = body["metadata"]
    notes = metadata["annotations"] | {SLOT_ANNOTATION: assignment.to_annotation()}
    labels = metadata["labels"] | {SUCCESSOR_LABEL: "true", HANDOVER_LABEL: "true"}
    spec = body["spec"] | {
        # A pod can only be created with a gate; later ones are refused (KEP-3521).
        "schedulingGates": [handover_gate()],
        "tolerations": [*body["spec"]["tolerations"], handover_toleration()],
    }
    return body | {"metadata": metadata | {"name": name, "labels": labels, "annotations": notes}, "spec": spec}


def build_fence(node: str, name: str, *, seconds: int, settings: PlaceholderSettings) -> Body:
    """Return the pod whose anti-affinity keeps others off a node during a hand-over, whatever they tolerate.

    Pods with a slot and pods of DaemonSets may enter; pods that are on the node already stay.
    """
    body = build_fence_against(node, name, {}, _WITHOUT_SLOT, seconds=seconds, settings=settings)
    # Schedulers count a pod that is bound, whether it runs or not. So this one mounts what does not exist: a kubelet
    # that waits for a volume creates no sandbox and starts no container, which would delay those of the owner.
    body["spec"]["volumes"] = [{"name": _MISSING_VOLUME, "configMap": {"name": FENCE_CONFIG_MAP}}]
    (container,) = body["spec"]["containers"]
    container["volumeMounts"] = [{"name": _MISSING_VOLUME, "mountPath": f"/{_MISSING_VOLUME}"}]
    return body


class FenceKind(StrEnum):
    """What a standing fence keeps off; a node gets one of each."""

    PODS = "pods"
    """Pods of others, but for DaemonSet pods and those without requests that the operator has let in."""
    PLACEHOLDERS = "placeholders"
    """Placeholders that do not await the node's capacity."""


def build_standing_fence(node: str, name: str, kind: FenceKind, *, seconds: int, settings: PlaceholderSettings) -> Body:
    """Return the pod that keeps others off a node while its capacity is awaited."""
    kept_off = {
        FenceKind.PODS: (*_STRANGERS, (BEST_EFFORT_LABEL, "DoesNotExist")),
        FenceKind.PLACEHOLDERS: (*_PLACEHOLDERS, (AWAITS_CAPACITY_LABEL, "DoesNotExist")),
    }[kind]
    labels = {STANDING_FENCE_LABEL: kind.value}
    return build_fence_against(node, name, labels, kept_off, seconds=seconds, settings=settings)


Expressions = tuple[tuple[str, ...], ...]
"""Key, operator and values of each expression of a selector."""
_STRANGERS: Final[Expressions] = ((RESERVATION_LABEL, "DoesNotExist"), (DAEMON_POD_LABEL, "DoesNotExist"))
_WITHOUT_SLOT: Final[Expressions] = ((HANDOVER_LABEL, "DoesNotExist"), (DAEMON_POD_LABEL, "DoesNotExist"))
_PLACEHOLDERS: Final[Expressions] = ((PLACEHOLDER_LABEL, "Exists"), (SUCCESSOR_LABEL, "DoesNotExist"))


def build_fence_against(
    node: str,
    name: str,
    labels: Mapping[str, str],
    kept_off: Expressions,
    *,
    seconds: int,
    settings: PlaceholderSettings,
) -> Body:
    """Return a fence against the pods that the selector `kept_off` matches."""
    # One anti-affinity term only: kube-scheduler tries a pod again after the deletion of another only if that matches
    # all terms (`isSchedulableAfterPodChange` of its plugin InterPodAffinity).
    # The empty selector matches all namespaces; without one the term is about pods of Berth's own only (KEP-2249).
    term = on_same_node(kept_off) | {"namespaceSelector": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {FENCE_LABEL: "true", MANAGED_LABEL: MANAGED_BY_OPERATOR, **labels},
        },
        # An explicit zero, for a LimitRange sets its defaults only where nothing is requested.
        "spec": _idle_spec("fence", {"cpu": "0", "memory": "0"}, settings)
        | {
            # Bound from the start: no scheduler looks at such a pod (kubernetes/kubernetes#61695).
            "nodeName": node,
            "activeDeadlineSeconds": max(1, seconds),
            **_priority_fields(FENCE_PRIORITY),
            # A pod without a toleration for a NoExecute taint is refused by the kubelet, which checks no other taints
            # (pkg/kubelet/lifecycle/predicate.go).
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        },
    }


def on_same_node(expressions: Expressions) -> Body:
    """Return the term of an affinity or anti-affinity to pods on the same node."""
    requirements = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, *values in expressions
    ]
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": requirements}}


def _idle_spec(name: str, requests: Mapping[str, str], settings: PlaceholderSettings) -> Body:
    """Return the spec of a pod with one idle container.

    Its limits equal its requests, so that neither the defaults of a LimitRange nor a quota of limits in Berth's
    namespace make another pod of it.
    """
    stated = dict.fromkeys(_ALWAYS_STATED, "0") | dict(requests)
    return {
        # The shortest: with 0 the API server would delete the pod while its container may still run
        # (`CheckGracefulDelete` in `pkg/registry/core/pod/strategy.go`).
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _restricted_pod_security(),
        "containers": [
            {
                "name": name,
                "image": settings.image,
                "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": stated, "limits": _limits_of(stated)},
                "securityContext": _restricted_container_security(),
            }
        ],
    }


def _limits_of(requests: Mapping[str, str]) -> Body:
    """Return limits equal to the requests; a limit of zero is none to the kubelet."""
    limits = dict(requests)
    if 0 < parse_quantity(limits["memory"]).nano() < parse_quantity(_LEAST_MEMORY_LIMIT).nano():
        limits["memory"] = _LEAST_MEMORY_LIMIT
    return limits


def _placeholder_spec(
    reservation: Reservation,
    task: ReservationTask,
    settings: PlaceholderSettings,
    excluded_nodes: Iterable[str] | None,
    node_names: tuple[str, ...],
) -> Body:
    spec = task.template.spec
    requests = effective_requests(spec).to_quantities()
    result = _idle_spec("placeholder", requests, settings) | {
        "schedulerName": scheduler_of(reservation, spec),
        "tolerations": [
            *(
                msgspec.to_builtins(toleration)
                for toleration in spec.tolerations
                if toleration.key not in {HANDOVER_TAINT, ROOM_TAINT}
            ),
            *room_tolerations(reservation, task.node_names),
        ],
    }
    if spec.node_selector:
        result["nodeSelector"] = dict(spec.node_selector)
    terms = _node_terms(spec, node_names)
    if excluded_nodes is not None:
        terms = _exclude_nodes(terms, excluded_nodes)
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        result["affinity"] = {"nodeAffinity": required}
    return result


def required_terms(spec: PodSpec) -> tuple[NodeSelectorTerm, ...]:
    """Return the template's required node terms, which are ORed."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required.node_selector_terms if required else ()


def _node_terms(spec: PodSpec, node_names: Iterable[str]) -> list[Body]:
    """Return the template's required node terms, which are ORed, each tied to each allowed node.

    `validation.refuse` bounds the product.
    """
    # The API server allows one name per field selector, so several nodes take several terms. An empty term allows no
    # node, but tied to a node it would allow that one: it is left out (`ValidateNodeFieldSelectorRequirement`).
    terms = [msgspec.to_builtins(term) for term in required_terms(spec)]
    pins = [{"key": "metadata.name", "operator": "In", "values": [node_name]} for node_name in node_names]
    bases: list[Body] = [term for term in terms if term] if terms else [{}]
    pinned_terms = [base | {"matchFields": [*base.get("matchFields", []), pin]} for base in bases for pin in pins]
    return pinned_terms or terms


def constraint_bytes(task: ReservationTask) -> int:
    """Return roughly how many bytes a placeholder's constraints take as JSON."""
    spec, names = task.template.spec, task.node_names
    terms = [len(msgspec.json.encode(term)) for term in required_terms(spec)]
    pinned_bytes = len(names) * sum(terms) + max(1, len(terms)) * sum(
        len(node_name) + _PIN_BYTES for node_name in names
    )
    encoded_fields = (spec.node_selector, spec.tolerations)
    return (pinned_bytes if names else sum(terms)) + sum(len(msgspec.json.encode(term)) for term in encoded_fields)


def _exclude_nodes(terms: list[Body], nodes: Iterable[str]) -> list[Body]:
    """Return node terms that exclude labelled control-plane nodes and these nodes."""
    if terms and not any(terms):
        return terms  # empty terms allow no node at all
    off_control_plane = [{"key": key, "operator": "DoesNotExist"} for key in CONTROL_PLANE_KEYS]
    named_nodes = [{"key": "metadata.name", "operator": "NotIn", "values": [node_name]} for node_name in sorted(nodes)]
    bases: list[Body] = [term for term in terms if term] or [{}]
    return [
        term
        | {"matchExpressions": [*term.get("matchExpressions", []), *off_control_plane]}
        | ({"matchFields": [*term.get("matchFields", []), *named_nodes]} if named_nodes else {})
        for term in bases
    ]


def build_priority_class(value: int) -> Body:
    """Return the placeholders' PriorityClass of a value, which never preempts."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(value), "labels": {MANAGED_LABEL: MANAGED_BY_OPERATOR}},
        # A placeholder may wait with its owner's priority, but must not evict pods for an owner that is not there
        # (KEP-902).
        "value": value,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Placeholders that hold places of this priority for Reservations; they preempt nothing.",
    }


def _priority_fields(value: int) -> Body:
    # All three, so that admission refuses the pod if the class of this name means something else
    # (`plugin/pkg/admission/priority/admission.go`).
    return {"priorityClassName": priority_class_name(value), "priority": value, "preemptionPolicy": "Never"}


def placeholder_priority(owner_priority: int) -> int:
    """Return the owner's priority, capped at the highest of a user's class."""
    # Higher values need a class of the prefix `system-`, which users cannot create.
    return min(owner_priority, _HIGHEST_USER_PRIORITY)


ANY_REGISTRATION: Final = "any"
"""The digest of probes that may come back by any version of the webhook's registration."""


def build_probe(reservation: Reservation, registration: str, settings: PlaceholderSettings) -> Body:
    """Return the dry-run pod that probes the hand-over path of a Reservation.

    Only an API server that uses the registration with this digest sends it to the webhook; `ANY_REGISTRATION` stands
    for all.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": probe_name(reservation.metadata.uid),
            "namespace": settings.namespace,
            "labels": {
                PROBE_LABEL: reservation.metadata.uid,
                PROBE_REGISTRATION_LABEL: registration,
                MANAGED_LABEL: MANAGED_BY_OPERATOR,
            },
            "annotations": {VERSION_ANNOTATION: reservation.metadata.resource_version},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": _restricted_pod_security(),
            "containers": [
                {
                    "name": "probe",
                    "image": settings.image,
                    "securityContext": _restricted_container_security(),
                }
            ],
        },
    }


def build_validation_pod(
    reservation_uid: str, task_name: str, raw_template: Mapping[str, Any], settings: PlaceholderSettings
) -> Body:
    """Return a dry-run pod of a task's raw template in the operator's own namespace.

    It omits what only that namespace would refuse (service account, priority class), and keeps unknown fields, for the
    API server to name them.
    """
    spec = dict(raw_template.get("spec") or {})
    for foreign in ("serviceAccountName", "serviceAccount", "priorityClassName", "priority", "preemptionPolicy"):
        spec.pop(foreign, None)
    for local in ("nodeName", "imagePullSecrets", "resourceClaims"):
        spec.pop(local, None)
    spec["automountServiceAccountToken"] = False
    for kind in ("containers", "initContainers"):
        if isinstance(spec.get(kind), list):
            spec[kind] = [_with_limits(container) for container in spec[kind]]
    metadata = raw_template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if not key.startswith(PROBE_LABEL)}
    return {key: value for key, value in raw_template.items() if key not in {"metadata", "status"}} | {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if key not in _DROPPED_METADATA}
        | {
            "name": f"{probe_name(reservation_uid)}-{task_name}"[:63].rstrip("-"),
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": spec,
    }


def _with_limits(raw: Any) -> Any:  # noqa: ANN401 - a container as written, whatever it is
    """Return a container whose limits are stated, for the defaults of a LimitRange may be below its requests."""
    resources = raw.get("resources") if isinstance(raw, Mapping) else None
    if not isinstance(resources, Mapping):
        return raw
    requests, limits = resources.get("requests"), resources.get("limits") or {}
    if not isinstance(requests, Mapping) or not isinstance(limits, Mapping):
        return raw
    stated = {resource: amount for resource, amount in requests.items() if resource in _COMPUTE}
    return {**raw, "resources": {**resources, "limits": {**stated, **limits}}}


def build_admission_pod(reservation: Reservation, task: ReservationTask, raw_template: Mapping[str, Any]) -> Body:
    """Return the dry-run pod that asks admission in the Reservation's namespace about a task's placeholders.

    It is the task's pod with a placeholder's restricted security, and without what a placeholder lacks and admission
    may refuse: account, volumes, the node's network and processes, privileges.
    """
    raw = raw_template.get("spec") or {}
    spec = {key: value for key, value in raw.items() if key not in _DROPPED_SPEC_FIELDS}
    spec |= {
        "schedulerName": scheduler_of(reservation, task.template.spec),
        "automountServiceAccountToken": False,
        "securityContext": _restricted_pod_security(),
    }
    for kind in ("containers", "initContainers"):
        if raw.get(kind):
            spec[kind] = [_restricted_container(container) for container in raw[kind]]
    metadata = raw_template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{probe_name(reservation.metadata.uid)}-{task.name}"[:63].rstrip("-"),
            "namespace": reservation.metadata.namespace,
            "labels": _not_ours(metadata.get("labels") or {}),
            "annotations": _not_ours(metadata.get("annotations") or {}),
        },
        "spec": spec,
    }


def _not_ours(keyed: Mapping[str, Any]) -> Body:
    return {key: value for key, value in keyed.items() if not key.startswith(f"{PREFIX}/")}


def _restricted_container(raw: Mapping[str, Any]) -> Body:
    """Return a container without volumes and host ports, with a placeholder's security."""
    kept_fields = {key: value for key, value in raw.items() if key not in {"volumeMounts", "volumeDevices", "ports"}}
    return kept_fields | {"securityContext": _restricted_container_security()}


def handover_toleration() -> Body:
    """Return the guard's toleration, which only pods in a hand-over get."""
    return {"key": HANDOVER_TAINT, "operator": "Exists", "effect": "NoSchedule"}


def room_tolerations(reservation: Reservation, nodes: Iterable[str]) -> list[Body]:
    """Return the tolerations of the taints by which the plan reserves nodes.

    Each is for one node of this plan, because the plan's pods must not take one another's room.
    """
    # They grant nothing new: the author of a pod may write any toleration, and only users who may taint nodes set them.
    plan = reservation.plan
    values = [room_taint_value(plan, node) for node in nodes] if plan else []
    return [{"key": ROOM_TAINT, "operator": "Equal", "value": value, "effect": "NoSchedule"} for value in values]


def handover_gate() -> Body:
    return {"name": HANDOVER_GATE}


def build_webhook_configuration(
    *, client_config: Mapping[str, Any], namespaces: Iterable[str], own_namespace: str, timeout_seconds: int
) -> Body:
    """Return the webhook's registration for the namespaces with a live Reservation: one entry for pods, one for probes.

    The first sees neither probes nor placeholders: a Reservation may be in the operator's own namespace, too, and a
    probe that both entries see would get two gates.
    """
    common: Body = {
        "admissionReviewVersions": ["v1"],
        "clientConfig": dict(client_config),
        # A webhook that is down must not keep pods from being created; HandoverReady says that they are not gated.
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "Never",
        # The API server sends dry runs, which the probes are, only to webhooks without side effects (KEP-576).
        "sideEffects": "None",
        "timeoutSeconds": timeout_seconds,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
    }
    handover = common | {
        "name": "handover.berth.volcano.sh",
        "namespaceSelector": _in_namespaces(namespaces),
        "objectSelector": {
            "matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in (PLACEHOLDER_LABEL, PROBE_LABEL)]
        },
    }
    # API servers use a registration some time after it is written (kubernetes/kubernetes#119180). The digest of the
    # first entry is in the selector of the second: a probe with it comes back gated only where this one is in use.
    digest = hashlib.sha256(msgspec.json.encode(handover, order="deterministic")).hexdigest()[:32]
    has_registration = {"key": PROBE_REGISTRATION_LABEL, "operator": "In", "values": [digest, ANY_REGISTRATION]}
    probe = common | {
        "name": "probe.berth.volcano.sh",
        "namespaceSelector": _in_namespaces([own_namespace]),
        "objectSelector": {"matchExpressions": [{"key": PROBE_LABEL, "operator": "Exists"}, has_registration]},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK_CONFIGURATION, "labels": {MANAGED_LABEL: MANAGED_BY_OPERATOR}},
        "webhooks": [handover, probe],
    }


def _in_namespaces(namespaces: Iterable[str]) -> Body:
    return {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(set(namespaces))}
        ]
    }
