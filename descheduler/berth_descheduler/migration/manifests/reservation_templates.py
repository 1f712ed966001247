"""What a Reservation's template keeps of a live pod: what scheduling sees, and nothing secret.

The template is made from the raw pod: decoding would lose scheduling fields that are unknown here. Whatever admission
and the API server added to the live pod is removed, because the replacement does not carry it yet when the webhook
compares the two, and because a pod that carries both would be refused.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from berth_core import HANDOVER_TAINT, PREFIX, ROOM_TAINT, PodSpec, effective_requests
from berth_core.decoding import convert
from berth_core.object_lists import RawObject

_POD_FIELDS: Final = (
    "affinity",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "nodeSelector",
    "os",
    "overhead",
    "priorityClassName",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "topologySpreadConstraints",
)

# Neither env nor args: they may hold secrets, and whoever may read Reservations need not be allowed to read pods.
# Ports stay because host ports decide about nodes, restartPolicy because a sidecar adds to the requests (KEP-753).
_CONTAINER_FIELDS: Final = ("name", "image", "resources", "ports", "restartPolicy")

_PRIORITY_FIELDS: Final = ("priority", "preemptionPolicy")
"""Kept where the pod names no PriorityClass, from which admission would set them."""

_DEFAULT_TOLERATIONS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_DEFAULT_TOLERATION_SECONDS: Final = 300
"""What the admission plugin DefaultTolerationSeconds gives a pod that does not tolerate these taints itself."""


def build_template(raw_pod: RawObject) -> dict[str, Any]:
    """Return the pod template, `{metadata, spec}`, that reserves a place for the pod's replacement."""
    labels = _own_labels((raw_pod.get("metadata") or {}).get("labels") or {})
    template: dict[str, Any] = {"spec": _spec(raw_pod["spec"], labels)}
    if labels:
        template["metadata"] = {"labels": labels}
    return template


def build_task(name: str, template: RawObject, *, replicas: int, node: str) -> dict[str, Any]:
    """Return a Reservation's task on one node, with `requestsNothing` where the template requests nothing."""
    task: dict[str, Any] = {
        "name": name,
        "replicas": replicas,
        "template": template,
        "reservationNodeNames": [node],
    }
    pod_requests = effective_requests(convert(template["spec"], PodSpec))
    return task if pod_requests.keys() else task | {"requestsNothing": True}


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    # Labels of ours on the live pod are about this hand-over or an earlier one, and the next pod comes without them.
    return {key: value for key, value in labels.items() if not key.startswith(f"{PREFIX}/")}


def _spec(raw: RawObject, labels: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {key: raw[key] for key in _POD_FIELDS if raw.get(key)}
    # Where a class is named, the admission plugin Priority sets both fields, and refuses a pod whose own value differs
    # from it (`plugin/pkg/admission/priority/admission.go`).
    if not raw.get("priorityClassName"):
        spec |= {key: raw[key] for key in _PRIORITY_FIELDS if raw.get(key)}
    if tolerations := [toleration for toleration in raw.get("tolerations") or () if not _was_added(toleration)]:
        spec["tolerations"] = tolerations
    if "affinity" in spec:
        spec["affinity"] = _without_merged_labels(spec["affinity"], labels)
    if "topologySpreadConstraints" in spec:
        spec["topologySpreadConstraints"] = [
            _unmerged(constraint, labels) for constraint in spec["topologySpreadConstraints"]
        ]
    if raw.get("initContainers"):
        spec["initContainers"] = [_container(container) for container in raw["initContainers"]]
    spec["containers"] = [_container(container) for container in raw["containers"]]
    return spec


def _container(raw: RawObject) -> dict[str, Any]:
    return {key: raw[key] for key in _CONTAINER_FIELDS if raw.get(key)}


def _was_added(toleration: RawObject) -> bool:
    """Return whether admission or the operator added the toleration."""
    if toleration.get("key") in {HANDOVER_TAINT, ROOM_TAINT}:
        return True
    return (
        toleration.get("key") in _DEFAULT_TOLERATIONS
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") == "NoExecute"
        and toleration.get("tolerationSeconds") == _DEFAULT_TOLERATION_SECONDS
    )


def _without_merged_labels(affinity: RawObject, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the affinity without the expressions that the API server merged into its selectors for `matchLabelKeys`.

    It does so when a pod is created (KEP-3633), so it does so for the replacement as well.
    """
    return {
        kind: _map_terms(part, lambda term: _unmerged(term, labels)) if kind != "nodeAffinity" else part
        for kind, part in affinity.items()
        if part is not None
    }


def _map_terms(part: RawObject, change: Callable[[RawObject], RawObject]) -> dict[str, Any]:
    """Return a pod (anti-)affinity with every term changed, required and preferred ones."""
    return {rule: [_change_term(term, change) for term in terms] for rule, terms in part.items() if terms is not None}


def _change_term(term: RawObject, change: Callable[[RawObject], RawObject]) -> RawObject:
    if term.get("podAffinityTerm"):
        return {**term, "podAffinityTerm": change(term["podAffinityTerm"])}
    return change(term)


def _unmerged(term: RawObject, labels: Mapping[str, str]) -> RawObject:
    """Return a term or constraint without the expressions merged for its `matchLabelKeys` and `mismatchLabelKeys`."""
    selector = term.get("labelSelector")
    merged = list(_merged_expressions(term, labels))
    if not selector or not merged:
        return term
    expressions = [expression for expression in selector.get("matchExpressions") or () if expression not in merged]
    cleaned = {key: value for key, value in selector.items() if key != "matchExpressions"}
    if expressions:
        cleaned["matchExpressions"] = expressions
    return {**term, "labelSelector": cleaned}


def _merged_expressions(term: RawObject, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                yield {"key": key, "operator": operator, "values": [labels[key]]}
