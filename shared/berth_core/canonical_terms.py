"""One spelling of affinities, selectors and tolerations, so that equal meanings compare equal.

The order of terms, expressions and values means nothing, `matchLabels` is short for an In with one value, and an empty
part is as absent, except for a pod selector: None selects nothing, an empty one everything.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from hashlib import blake2b
from typing import Final

from berth_core.labels import HANDOVER_TAINT, ROOM_TAINT
from berth_core.objects.metadata import LabelSelector, LabelSelectorRequirement
from berth_core.objects.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)

_ADDED_KEYS: Final = frozenset({HANDOVER_TAINT, ROOM_TAINT})
_DEFAULT_TOLERATION_KEYS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
# What the admission plugin DefaultTolerationSeconds writes into pods unless its flags say otherwise.
_DEFAULT_TOLERATION_SECONDS: Final = 300
_PREFERRED_SPREAD: Final = "ScheduleAnyway"


def canonical_tolerations(tolerations: Iterable[Toleration]) -> frozenset[Toleration]:
    """Return tolerations without the API server's defaults and those of a hand-over."""
    return frozenset(
        _spelt_out(toleration)
        for toleration in tolerations
        if toleration.key not in _ADDED_KEYS and not _is_default(toleration)
    )


def canonical_affinity(affinity: Affinity | None) -> Hashable:
    if affinity is None:
        return ((), (), ())
    return (
        _node_affinity(affinity.node_affinity),
        _pod_affinity(affinity.pod_affinity),
        _pod_affinity(affinity.pod_anti_affinity),
    )


def canonical_spread(constraints: Iterable[TopologySpreadConstraint]) -> frozenset[Hashable]:
    """Return the required spread constraints in canonical form."""
    return frozenset(
        (
            constraint.max_skew,
            constraint.topology_key,
            canonical_selector(_as_written(constraint)),
            # These three are the scheduler's defaults (pkg/scheduler/framework/plugins/podtopologyspread/common.go).
            constraint.min_domains or 1,
            constraint.node_affinity_policy or "Honor",
            constraint.node_taints_policy or "Ignore",
            frozenset(constraint.match_label_keys),
        )
        for constraint in constraints
        if constraint.when_unsatisfiable != _PREFERRED_SPREAD
    )


def canonical_selector(selector: LabelSelector | None) -> Hashable:
    """Return a selector in canonical form; None stays None."""
    if selector is None:
        return None
    labels = (
        LabelSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in selector.match_labels.items()
    )
    return _requirements((*labels, *selector.match_expressions))


def digest(spelling: Hashable) -> bytes:
    """Return a digest that only equal spellings share; comparing digests is cheap."""
    return blake2b(_text(spelling).encode(), digest_size=16).digest()


def _text(spelling: Hashable) -> str:
    """Return a spelling as text; equal sets give equal text."""
    match spelling:
        case frozenset():
            return f"{{{','.join(sorted(map(_text, spelling)))}}}"
        case tuple():
            return f"({','.join(map(_text, spelling))})"
        case _:
            return repr(spelling)


def _spelt_out(toleration: Toleration) -> Toleration:
    return Toleration(
        key=toleration.key,
        operator=toleration.operator or "Equal",
        value=toleration.value,
        effect=toleration.effect,
        toleration_seconds=toleration.toleration_seconds,
    )


def _is_default(toleration: Toleration) -> bool:
    """Return whether admission gives this toleration to every pod.

    See plugin/pkg/admission/defaulttolerationseconds of Kubernetes.
    """
    return (
        toleration.key in _DEFAULT_TOLERATION_KEYS
        and toleration.operator == "Exists"
        and toleration.effect == "NoExecute"
        and toleration.toleration_seconds == _DEFAULT_TOLERATION_SECONDS
    )


def _node_affinity(affinity: NodeAffinity | None) -> Hashable:
    if affinity is None:
        return ()
    required = affinity.required_during_scheduling_ignored_during_execution
    required_terms = None if required is None else frozenset(_node_term(term) for term in required.node_selector_terms)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    preferred_terms = _counted((term.weight, _node_term(term.preference)) for term in preferred)
    return () if required_terms is None and not preferred_terms else (required_terms, preferred_terms)


def _node_term(term: NodeSelectorTerm) -> Hashable:
    return (_requirements(term.match_expressions), _requirements(term.match_fields))


def _pod_affinity(affinity: PodAffinity | None) -> Hashable:
    if affinity is None:
        return ()
    required_terms = frozenset(_pod_term(term) for term in affinity.required_during_scheduling_ignored_during_execution)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    preferred_terms = _counted((term.weight, _pod_term(term.pod_affinity_term)) for term in preferred)
    return (required_terms, preferred_terms) if required_terms or preferred_terms else ()


def _pod_term(term: PodAffinityTerm) -> Hashable:
    return (
        canonical_selector(_as_written(term)),
        term.topology_key,
        frozenset(term.namespaces),
        canonical_selector(term.namespace_selector),
        frozenset(term.match_label_keys),
        frozenset(term.mismatch_label_keys),
    )


def _as_written(term: PodAffinityTerm | TopologySpreadConstraint) -> LabelSelector | None:
    """Return a term's selector without the API server's expressions for `matchLabelKeys`.

    A pod has them once it is stored, but not yet when a webhook sees its creation (KEP-3633; in spread constraints from
    1.34 on, feature gate MatchLabelKeysInPodTopologySpreadSelectorMerge). A user cannot write the same keys into the
    selector.
    """
    mismatch = term.mismatch_label_keys if isinstance(term, PodAffinityTerm) else ()
    if term.label_selector is None or not (term.match_label_keys or mismatch):
        return term.label_selector
    made_by_keys = {*((key, "In") for key in term.match_label_keys), *((key, "NotIn") for key in mismatch)}
    kept_requirements = (
        requirement
        for requirement in term.label_selector.match_expressions
        if (requirement.key, requirement.operator) not in made_by_keys
    )
    return LabelSelector(match_labels=term.label_selector.match_labels, match_expressions=tuple(kept_requirements))


def _requirements(requirements: Iterable[LabelSelectorRequirement]) -> Hashable:
    return frozenset(
        (requirement.key, requirement.operator, frozenset(requirement.values)) for requirement in requirements
    )


def _counted(terms: Iterable[Hashable]) -> frozenset[tuple[Hashable, int]]:
    """Return how often each term occurs: the weights of a repeated term add up."""
    return frozenset(Counter(terms).items())
