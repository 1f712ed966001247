"""Owns what a Reservation's template keeps of a live pod: what scheduling sees, and nothing secret.

It does not own the rest of the Reservation (`plan_objects`) or how templates are matched (`berth_core.matching`).

The raw pod is read, not a decoded one: a field of scheduling that is not known here must not be lost by decoding. What
admission and the API server added to the live pod is taken off again, because the replacement does not carry it yet
when the webhook compares the two, and because a pod that carries both would be refused.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from berth_core.labels import HANDOVER_TAINT, PREFIX, ROOM_TAINT
from berth_core.objects import PodSpec
from berth_core.pod_requests import effective_requests

RawObject = Mapping[str, Any]

_KEPT_AS_THEY_ARE: Final = (
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
_KEPT_OF_A_CONTAINER: Final = ("name", "image", "resources", "ports", "restartPolicy")
_KEPT_WITHOUT_A_CLASS: Final = ("priority", "preemptionPolicy")
_DEFAULT_TOLERATIONS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATION_SECONDS: Final = 300


def build_template(raw_pod: RawObject) -> dict[str, Any]:
    """Return the pod template `{metadata, spec}` that holds a place for the pod's replacement."""
    labels = _own_labels(raw_pod.get("metadata", {}).get("labels") or {})
    template: dict[str, Any] = {"spec": _spec(raw_pod["spec"], labels)}
    if labels:
        template["metadata"] = {"labels": labels}
    return template


def build_task(name: str, template: RawObject, *, replicas: int, node: str) -> dict[str, Any]:
    """Return a Reservation's task on one node; it says so where the template requests nothing."""
    task: dict[str, Any] = {
        "name": name,
        "replicas": replicas,
        "template": template,
        "reservationNodeNames": [node],
    }
    asked = effective_requests(msgspec.convert(template["spec"], PodSpec))
    return task if asked.keys() else task | {"requestsNothing": True}


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if not key.startswith(f"{PREFIX}/")}


def _spec(raw: RawObject, labels: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {key: raw[key] for key in _KEPT_AS_THEY_ARE if raw.get(key)}
    if not raw.get("priorityClassName"):
        spec |= {key: raw[key] for key in _KEPT_WITHOUT_A_CLASS if raw.get(key)}
    if tolerations := [one for one in raw.get("tolerations") or () if not _was_added(one)]:
        spec["tolerations"] = tolerations
    if "affinity" in spec:
        spec["affinity"] = _without_merged_labels(spec["affinity"], labels)
    if "topologySpreadConstraints" in spec:
        spec["topologySpreadConstraints"] = [_unmerged(one, labels) for one in spec["topologySpreadConstraints"]]
    if raw.get("initContainers"):
        spec["initContainers"] = [_container(one) for one in raw["initContainers"]]
    spec["containers"] = [_container(one) for one in raw["containers"]]
    return spec


def _container(raw: RawObject) -> dict[str, Any]:
    return {key: raw[key] for key in _KEPT_OF_A_CONTAINER if raw.get(key)}


def _was_added(toleration: RawObject) -> bool:
    """Tell whether admission or the operator put the toleration on the live pod."""
    if toleration.get("key") in {HANDOVER_TAINT, ROOM_TAINT}:
        return True
    return (
        toleration.get("key") in _DEFAULT_TOLERATIONS
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") == "NoExecute"
        and toleration.get("tolerationSeconds") == _DEFAULT_TOLERATION_SECONDS
    )


def _without_merged_labels(affinity: RawObject, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the affinity as it was written: the API server turns `matchLabelKeys` into expressions as well."""
    return {
        kind: _map_terms(part, lambda term: _unmerged(term, labels)) if kind != "nodeAffinity" else part
        for kind, part in affinity.items()
    }


def _map_terms(part: RawObject, change: Callable[[RawObject], RawObject]) -> dict[str, Any]:
    """Return a pod (anti-)affinity with every term changed, required and preferred ones."""
    return {rule: [_change_term(term, change) for term in terms] for rule, terms in part.items()}


def _change_term(term: RawObject, change: Callable[[RawObject], RawObject]) -> RawObject:
    if "podAffinityTerm" in term:
        return {**term, "podAffinityTerm": change(term["podAffinityTerm"])}
    return change(term)


def _unmerged(term: RawObject, labels: Mapping[str, str]) -> RawObject:
    """Return a term without the expressions that stand for its `matchLabelKeys` and `mismatchLabelKeys`."""
    selector = term.get("labelSelector")
    merged = list(_merged_expressions(term, labels))
    if not selector or not merged:
        return term
    expressions = [one for one in selector.get("matchExpressions") or () if one not in merged]
    cleaned = {key: value for key, value in selector.items() if key != "matchExpressions"}
    if expressions:
        cleaned["matchExpressions"] = expressions
    return {**term, "labelSelector": cleaned}


def _merged_expressions(term: RawObject, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                yield {"key": key, "operator": operator, "values": [labels[key]]}
