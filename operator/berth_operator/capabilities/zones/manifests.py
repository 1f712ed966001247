"""The fence of a lent node."""

from collections.abc import Mapping
from typing import Final

from berth_core import DAEMON_POD_LABEL, PREEMPTABLE_ANNOTATION, PREEMPTABLE_LABEL, STANDING_FENCE_LABEL, LentFence
from berth_operator.reservation.manifests import Body, Expressions, build_fence_against, on_same_node
from berth_operator.settings import PlaceholderSettings

_NOT_OF_DAEMONS: Final[Expressions] = ((DAEMON_POD_LABEL, "DoesNotExist"),)
_PREEMPTABLE: Final[Expressions] = ((PREEMPTABLE_LABEL, "Exists"), (PREEMPTABLE_ANNOTATION, "In", "true"))
_NOT_PREEMPTABLE: Final[Expressions] = (
    *_NOT_OF_DAEMONS,
    (PREEMPTABLE_LABEL, "DoesNotExist"),
    (PREEMPTABLE_ANNOTATION, "NotIn", "true"),
)


def build_lent_fence(
    node: str, name: str, kind: LentFence, notes: Mapping[str, str], *, seconds: int, settings: PlaceholderSettings
) -> Body:
    """Return the pod that keeps others off a lent node."""
    labels = {STANDING_FENCE_LABEL: kind.value}
    kept_off = _NOT_PREEMPTABLE if kind is LentFence.OPEN else _NOT_OF_DAEMONS
    body = build_fence_against(node, name, labels, kept_off, seconds=seconds, settings=settings)
    body["metadata"]["annotations"] = dict(notes)
    if kind is not LentFence.OPEN:
        return body
    # Preferred affinity works in both directions: kube-scheduler also scores a node by the preferences of pods that are
    # on it, so preemptable pods fill lent nodes first (`pkg/scheduler/framework/plugins/interpodaffinity/scoring.go`).
    terms = [on_same_node((expression,)) | {"namespaceSelector": {}} for expression in _PREEMPTABLE]
    preferred = [{"weight": 100, "podAffinityTerm": term} for term in terms]
    body["spec"]["affinity"]["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    return body
