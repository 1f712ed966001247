"""Owns one spelling of affinities, selectors and tolerations, so that what means the same compares equal.

It does not own what they match: that is in `berth_core.selectors`.

The order of terms, expressions and values means nothing, `matchLabels` is short for an In with one value,
and what is empty is as absent, except for a pod selector, of which none selects nothing and an empty one everything.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from hashlib import blake2b
from typing import Final

from berth_core.labels import HANDOVER_TAINT, ROOM_TAINT
from berth_core.objects import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)

_ADDED_KEYS: Final = frozenset({HANDOVER_TAINT, ROOM_TAINT})
_DEFAULT_TOLERATION_KEYS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_DEFAULT_TOLERATION_SECONDS: Final = 300
_PREFERRED_SPREAD: Final = "ScheduleAnyway"


def canonical_tolerations(tolerations: Iterable[Toleration]) -> frozenset[Toleration]:
    """Return what is tolerated, without what the API server gives to every pod and what a hand-over adds."""
    return frozenset(_spelt_out(t) for t in tolerations if t.key not in _ADDED_KEYS and not _is_default(t))


def canonical_affinity(affinity: Affinity | None) -> Hashable:
    """Return an affinity in the one spelling."""
    if affinity is None:
        return ((), (), ())
    return (
        _node_affinity(affinity.node_affinity),
        _pod_affinity(affinity.pod_affinity),
        _pod_affinity(affinity.pod_anti_affinity),
    )


def canonical_spread(constraints: Iterable[TopologySpreadConstraint]) -> frozenset[Hashable]:
    """Return the spread that must hold in the one spelling, without what is only preferred."""
    return frozenset(
        (
            one.max_skew,
            one.topology_key,
            canonical_selector(_as_written(one)),
            one.min_domains or 1,
            one.node_affinity_policy or "Honor",
            one.node_taints_policy or "Ignore",
            frozenset(one.match_label_keys),
        )
        for one in constraints
        if one.when_unsatisfiable != _PREFERRED_SPREAD
    )


def canonical_selector(selector: LabelSelector | None) -> Hashable:
    """Return a selector in the one spelling; None stays None."""
    if selector is None:
        return None
    labels = (LabelSelectorRequirement(key=k, operator="In", values=(v,)) for k, v in selector.match_labels.items())
    return _requirements((*labels, *selector.match_expressions))


def digest(spelling: Hashable) -> bytes:
    """Return what only equal spellings share; comparing two costs nothing, however long they are."""
    return blake2b(_text(spelling).encode(), digest_size=16).digest()


def _text(spelling: Hashable) -> str:
    """Return a spelling as text, its sets in order."""
    match spelling:
        case frozenset():
            return f"{{{','.join(sorted(map(_text, spelling)))}}}"
        case tuple():
            return f"({','.join(map(_text, spelling))})"
        case _:
            return repr(spelling)


def _spelt_out(toleration: Toleration) -> Toleration:
    """Return a toleration with its operator written."""
    return Toleration(
        key=toleration.key,
        operator=toleration.operator or "Equal",
        value=toleration.value,
        effect=toleration.effect,
        toleration_seconds=toleration.toleration_seconds,
    )


def _is_default(toleration: Toleration) -> bool:
    """Tell whether a toleration is of the pair that the API server gives to every pod."""
    return (
        toleration.key in _DEFAULT_TOLERATION_KEYS
        and toleration.operator == "Exists"
        and toleration.effect == "NoExecute"
        and toleration.toleration_seconds == _DEFAULT_TOLERATION_SECONDS
    )


def _node_affinity(affinity: NodeAffinity | None) -> Hashable:
    """Return node affinity in the one spelling."""
    if affinity is None:
        return ()
    required = affinity.required_during_scheduling_ignored_during_execution
    must = None if required is None else frozenset(_node_term(term) for term in required.node_selector_terms)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    rather = _counted((term.weight, _node_term(term.preference)) for term in preferred)
    return () if must is None and not rather else (must, rather)


def _node_term(term: NodeSelectorTerm) -> Hashable:
    """Return a node term in the one spelling."""
    return (_requirements(term.match_expressions), _requirements(term.match_fields))


def _pod_affinity(affinity: PodAffinity | None) -> Hashable:
    """Return pod affinity or anti-affinity in the one spelling."""
    if affinity is None:
        return ()
    must = frozenset(_pod_term(term) for term in affinity.required_during_scheduling_ignored_during_execution)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    rather = _counted((term.weight, _pod_term(term.pod_affinity_term)) for term in preferred)
    return (must, rather) if must or rather else ()


def _pod_term(term: PodAffinityTerm) -> Hashable:
    """Return a pod term in the one spelling."""
    return (
        canonical_selector(_as_written(term)),
        term.topology_key,
        frozenset(term.namespaces),
        canonical_selector(term.namespace_selector),
        frozenset(term.match_label_keys),
        frozenset(term.mismatch_label_keys),
    )


def _as_written(term: PodAffinityTerm | TopologySpreadConstraint) -> LabelSelector | None:
    """Return a term's selector without the expressions that the API server makes of its `matchLabelKeys`.

    A pod has them once it is stored, and not yet when a webhook sees it being created. The same keys cannot stand in a
    selector that somebody wrote.
    """
    mismatch = term.mismatch_label_keys if isinstance(term, PodAffinityTerm) else ()
    if term.label_selector is None or not (term.match_label_keys or mismatch):
        return term.label_selector
    made = {*((key, "In") for key in term.match_label_keys), *((key, "NotIn") for key in mismatch)}
    kept = (one for one in term.label_selector.match_expressions if (one.key, one.operator) not in made)
    return LabelSelector(match_labels=term.label_selector.match_labels, match_expressions=tuple(kept))


def _requirements(requirements: Iterable[LabelSelectorRequirement]) -> Hashable:
    """Return expressions in the one spelling."""
    return frozenset((r.key, r.operator, frozenset(r.values)) for r in requirements)


def _counted(terms: Iterable[Hashable]) -> frozenset[tuple[Hashable, int]]:
    """Return how often each term stands there: the weights of a term that is written twice add up."""
    return frozenset(Counter(terms).items())
