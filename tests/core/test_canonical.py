from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from berth_core import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
)
from berth_core.canonical_terms import canonical_affinity, canonical_selector, canonical_tolerations, digest
from berth_core.labels import HANDOVER_TAINT
from berth_core.objects.scheduling import PreferredSchedulingTerm, WeightedPodAffinityTerm


def requirement(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def must(*terms: NodeSelectorTerm) -> Affinity:
    required = NodeSelector(node_selector_terms=terms)
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))


def rather(*terms: PreferredSchedulingTerm) -> Affinity:
    return Affinity(node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=terms))


def near(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def rather_near(*terms: WeightedPodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(preferred_during_scheduling_ignored_during_execution=terms))


def apart(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


A = requirement("zone", "In", "a")
B = requirement("zone", "In", "b")
TERM_A = NodeSelectorTerm(match_expressions=(A,))
TERM_B = NodeSelectorTerm(match_expressions=(B,))
WEB = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "web"}), topology_key="zone")
DB = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "db"}), topology_key="zone")
AS_WRITTEN = replace(WEB, match_label_keys=("version",))
AS_STORED = replace(
    AS_WRITTEN,
    label_selector=LabelSelector(match_labels={"app": "web"}, match_expressions=(requirement("version", "In", "1"),)),
)


@dataclass(frozen=True)
class Pair:
    left: Affinity | None
    right: Affinity | None
    want_same: bool = True


PAIRS = {
    "empty is as absent": Pair(None, Affinity()),
    "empty parts are as absent": Pair(
        None, Affinity(node_affinity=NodeAffinity(), pod_affinity=PodAffinity(), pod_anti_affinity=PodAffinity())
    ),
    "the order of terms": Pair(must(TERM_A, TERM_B), must(TERM_B, TERM_A)),
    "a term twice": Pair(must(TERM_A, TERM_A), must(TERM_A)),
    "the order of expressions": Pair(
        must(NodeSelectorTerm(match_expressions=(A, B))), must(NodeSelectorTerm(match_expressions=(B, A)))
    ),
    "the order of values": Pair(
        must(NodeSelectorTerm(match_expressions=(requirement("zone", "In", "a", "b"),))),
        must(NodeSelectorTerm(match_expressions=(requirement("zone", "In", "b", "a"),))),
    ),
    "two terms are not one with both": Pair(
        must(TERM_A, TERM_B), must(NodeSelectorTerm(match_expressions=(A, B))), want_same=False
    ),
    "another value": Pair(must(TERM_A), must(TERM_B), want_same=False),
    "a field is no label": Pair(must(TERM_A), must(NodeSelectorTerm(match_fields=(A,))), want_same=False),
    "no terms are not no requirement": Pair(must(), None, want_same=False),
    "must is not rather": Pair(
        must(TERM_A), rather(PreferredSchedulingTerm(weight=1, preference=TERM_A)), want_same=False
    ),
    "the order of preferences": Pair(
        rather(
            PreferredSchedulingTerm(weight=1, preference=TERM_A), PreferredSchedulingTerm(weight=2, preference=TERM_B)
        ),
        rather(
            PreferredSchedulingTerm(weight=2, preference=TERM_B), PreferredSchedulingTerm(weight=1, preference=TERM_A)
        ),
    ),
    "a preference twice weighs more": Pair(
        rather(*[PreferredSchedulingTerm(weight=1, preference=TERM_A)] * 2),
        rather(PreferredSchedulingTerm(weight=1, preference=TERM_A)),
        want_same=False,
    ),
    "another weight": Pair(
        rather(PreferredSchedulingTerm(weight=1, preference=TERM_A)),
        rather(PreferredSchedulingTerm(weight=2, preference=TERM_A)),
        want_same=False,
    ),
    "the order of pod terms": Pair(near(WEB, DB), near(DB, WEB)),
    "near is not apart": Pair(near(WEB), apart(WEB), want_same=False),
    "labels are short for expressions": Pair(
        near(WEB),
        near(
            PodAffinityTerm(
                label_selector=LabelSelector(match_expressions=(requirement("app", "In", "web"),)), topology_key="zone"
            )
        ),
    ),
    "another topology": Pair(
        near(WEB), near(PodAffinityTerm(label_selector=WEB.label_selector, topology_key="host")), want_same=False
    ),
    "the order of namespaces": Pair(
        near(PodAffinityTerm(topology_key="zone", namespaces=("a", "b"))),
        near(PodAffinityTerm(topology_key="zone", namespaces=("b", "a"))),
    ),
    "no selector selects nothing, an empty one everything": Pair(
        near(PodAffinityTerm(topology_key="zone")),
        near(PodAffinityTerm(topology_key="zone", label_selector=LabelSelector())),
        want_same=False,
    ),
    "what the API server makes of matchLabelKeys": Pair(near(AS_WRITTEN), near(AS_STORED)),
    "what it makes of mismatchLabelKeys": Pair(
        apart(replace(AS_WRITTEN, match_label_keys=(), mismatch_label_keys=("version",))),
        apart(
            replace(
                AS_WRITTEN,
                match_label_keys=(),
                mismatch_label_keys=("version",),
                label_selector=LabelSelector(
                    match_labels={"app": "web"}, match_expressions=(requirement("version", "NotIn", "1"),)
                ),
            )
        ),
    ),
    "an expression that no key stands for": Pair(
        near(replace(AS_WRITTEN, match_label_keys=())), near(replace(AS_STORED, match_label_keys=())), want_same=False
    ),
    "a key of labels is no key of others": Pair(
        near(AS_WRITTEN), near(replace(AS_WRITTEN, match_label_keys=("other",))), want_same=False
    ),
    "preferences for pods": Pair(
        rather_near(WeightedPodAffinityTerm(weight=1, pod_affinity_term=WEB)),
        rather_near(WeightedPodAffinityTerm(weight=1, pod_affinity_term=DB)),
        want_same=False,
    ),
}


@pytest.mark.parametrize("case", PAIRS.values(), ids=PAIRS.keys())
def test_affinities_that_mean_the_same_are_the_same(case: Pair) -> None:
    left, right = canonical_affinity(case.left), canonical_affinity(case.right)
    assert (left == right) is case.want_same
    assert (hash(left) == hash(right)) is case.want_same
    assert (digest(left) == digest(right)) is case.want_same


def nested(one: st.SearchStrategy[Hashable]) -> st.SearchStrategy[Hashable]:
    return st.lists(one, max_size=3).map(frozenset) | st.tuples(one, one)


@given(st.recursive(st.text() | st.none() | st.integers(), nested, max_leaves=12))
def test_a_digest_tells_a_spelling_from_one_that_is_nested_otherwise(spelling: Hashable) -> None:
    assert digest(spelling) == digest(spelling)
    assert len({digest(one) for one in (spelling, (spelling,), frozenset({spelling}), str((spelling,)))}) == 4


def test_selectors_keep_the_difference_between_none_and_empty() -> None:
    assert canonical_selector(None) is None
    assert canonical_selector(LabelSelector()) == frozenset()


NOT_READY = Toleration(
    key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=300
)
UNREACHABLE = Toleration(
    key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=300
)
GPU = Toleration(key="gpu", operator="Exists")


@dataclass(frozen=True)
class Tolerated:
    tolerations: tuple[Toleration, ...]
    want: tuple[Toleration, ...] = ()


TOLERATED = {
    "nothing": Tolerated(()),
    "the pair that every pod gets": Tolerated((NOT_READY, UNREACHABLE)),
    "the pair beside others": Tolerated((NOT_READY, GPU, UNREACHABLE), (GPU,)),
    "a wait of one's own": Tolerated(
        (Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=30),),
        (Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=30),),
    ),
    "what a hand-over adds": Tolerated((Toleration(key=HANDOVER_TAINT, operator="Exists", effect="NoSchedule"),)),
    "the same twice": Tolerated((GPU, GPU), (GPU,)),
    "an operator that is not written": Tolerated(
        (Toleration(key="a", value="b"),), (Toleration(key="a", operator="Equal", value="b"),)
    ),
}


@pytest.mark.parametrize("case", TOLERATED.values(), ids=TOLERATED.keys())
def test_tolerations_without_what_others_add(case: Tolerated) -> None:
    assert canonical_tolerations(case.tolerations) == frozenset(case.want)
    assert canonical_tolerations(reversed(case.tolerations)) == frozenset(case.want)
