from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from berth_core.selectors import (
    matches_any_term,
    matches_labels,
    matches_node_affinity,
    matches_term,
    tolerates,
    untolerated_taint,
)
from builders import node, pod_spec

ZONE = "topology.kubernetes.io/zone"


def requirement(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


@dataclass(frozen=True)
class Expression:
    operator: str
    values: tuple[str, ...]
    labels: dict[str, str]
    want: bool


EXPRESSIONS = {
    "In finds its value": Expression("In", ("a", "b"), {"k": "b"}, want=True),
    "In does not find another": Expression("In", ("a", "b"), {"k": "c"}, want=False),
    "In does not find a missing label": Expression("In", ("a",), {}, want=False),
    "NotIn refuses its value": Expression("NotIn", ("a",), {"k": "a"}, want=False),
    "NotIn takes another": Expression("NotIn", ("a",), {"k": "b"}, want=True),
    "NotIn takes a missing label": Expression("NotIn", ("a",), {}, want=True),
    "Exists finds an empty value": Expression("Exists", (), {"k": ""}, want=True),
    "Exists needs the label": Expression("Exists", (), {"other": ""}, want=False),
    "DoesNotExist takes a missing label": Expression("DoesNotExist", (), {}, want=True),
    "DoesNotExist refuses the label": Expression("DoesNotExist", (), {"k": ""}, want=False),
    "Gt compares numbers, not texts": Expression("Gt", ("9",), {"k": "10"}, want=True),
    "Gt wants more": Expression("Gt", ("10",), {"k": "10"}, want=False),
    "Lt wants less": Expression("Lt", ("10",), {"k": "9"}, want=True),
    "a negative number is no label value": Expression("Lt", ("-1",), {"k": "-2"}, want=False),
    "a number of 64 bits counts": Expression("Gt", (str(2**63 - 2),), {"k": str(2**63 - 1)}, want=True),
    "a value of more than 64 bits is no number": Expression("Lt", (str(2**63),), {"k": "1"}, want=False),
    "a label of more than 64 bits is no number": Expression("Gt", ("1",), {"k": str(2**63)}, want=False),
    "zeros before a number do not count": Expression("Gt", ("1",), {"k": f"{'0' * 30}2"}, want=True),
    "NotIn with what is no label value matches nothing": Expression("NotIn", ("bad value: ___@#",), {}, want=False),
    "NotIn with one such value among others": Expression("NotIn", ("a", "-b"), {"k": "c"}, want=False),
    "In with one such value among others": Expression("In", ("a", "a b"), {"k": "a"}, want=False),
    "a value may be empty": Expression("NotIn", ("",), {"k": "a"}, want=True),
    "a value of 63 characters is one": Expression("NotIn", ("a" * 63,), {}, want=True),
    "a value of 64 characters is none": Expression("NotIn", ("a" * 64,), {}, want=False),
    "In needs a value": Expression("In", (), {"k": "a"}, want=False),
    "NotIn needs a value": Expression("NotIn", (), {"k": "a"}, want=False),
    "Exists takes no value": Expression("Exists", ("a",), {"k": "a"}, want=False),
    "DoesNotExist takes no value": Expression("DoesNotExist", ("a",), {}, want=False),
    "Gt needs the label": Expression("Gt", ("1",), {}, want=False),
    "Gt needs a number in the label": Expression("Gt", ("1",), {"k": "two"}, want=False),
    "Gt needs a number as its value": Expression("Gt", ("one",), {"k": "2"}, want=False),
    "Gt needs one value": Expression("Gt", ("1", "2"), {"k": "3"}, want=False),
    "an unknown operator matches nothing": Expression("Near", ("a",), {"k": "a"}, want=False),
}


@pytest.mark.parametrize("case", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_an_expression_over_labels(case: Expression) -> None:
    selector = LabelSelector(match_expressions=(requirement("k", case.operator, *case.values),))
    assert matches_labels(selector, case.labels) is (case.want and case.operator not in {"Gt", "Lt"})
    term = NodeSelectorTerm(match_expressions=selector.match_expressions)
    assert matches_term(term, node(labels=case.labels)) is case.want


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("k", True),
        ("example.com/k", True),
        ("k.-_9", True),
        ("", False),
        ("a b", False),
        ("-k", False),
        ("Example.com/k", False),
        ("/k", False),
        ("example.com/", False),
        ("a/b/c", False),
        ("k" * 64, False),
        (f"{'a.' * 127}com/k", False),
    ],
)
def test_an_expression_about_what_is_no_key_matches_nothing(key: str, *, want: bool) -> None:
    selector = LabelSelector(match_expressions=(requirement(key, "DoesNotExist"),))
    assert matches_labels(selector, {}) is want


@dataclass(frozen=True)
class Selection:
    selector: LabelSelector | None
    want: bool


SELECTIONS = {
    "none selects nothing": Selection(None, want=False),
    "an empty one selects everything": Selection(LabelSelector(), want=True),
    "a label": Selection(LabelSelector(match_labels={"app": "web"}), want=True),
    "another label": Selection(LabelSelector(match_labels={"app": "db"}), want=False),
    "all labels must match": Selection(LabelSelector(match_labels={"app": "web", "tier": "x"}), want=False),
    "labels and expressions must match": Selection(
        LabelSelector(match_labels={"app": "web"}, match_expressions=(requirement("tier", "Exists"),)), want=False
    ),
    "all expressions must match": Selection(
        LabelSelector(match_expressions=(requirement("app", "Exists"), requirement("app", "NotIn", "web"))),
        want=False,
    ),
}


@pytest.mark.parametrize("case", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_a_selector_over_labels(case: Selection) -> None:
    assert matches_labels(case.selector, {"app": "web"}) is case.want


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


@given(LABELS, LABELS)
def test_match_labels_are_short_for_expressions(wanted: dict[str, str], labels: dict[str, str]) -> None:
    long = LabelSelector(match_expressions=tuple(requirement(key, "In", value) for key, value in wanted.items()))
    assert matches_labels(LabelSelector(match_labels=wanted), labels) == matches_labels(long, labels)


@given(LABELS, st.sampled_from("abc"), st.sets(st.sampled_from("xyz"), min_size=1))
def test_not_in_is_the_contrary_of_in(labels: dict[str, str], key: str, values: set[str]) -> None:
    inside = LabelSelector(match_expressions=(requirement(key, "In", *values),))
    outside = LabelSelector(match_expressions=(requirement(key, "NotIn", *values),))
    assert matches_labels(inside, labels) != matches_labels(outside, labels)


@dataclass(frozen=True)
class Place:
    terms: tuple[NodeSelectorTerm, ...] | None = None
    node_selector: dict[str, str] = field(default_factory=dict)
    want: bool = True


def term(*expressions: LabelSelectorRequirement, fields: tuple[LabelSelectorRequirement, ...] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions, match_fields=fields)


IN_A = requirement(ZONE, "In", "a")
IN_B = requirement(ZONE, "In", "b")
NAMED = requirement("metadata.name", "In", "node-a")

PLACES = {
    "a pod that says nothing may go anywhere": Place(),
    "the nodeSelector must match": Place(node_selector={ZONE: "a"}),
    "all of the nodeSelector must match": Place(node_selector={ZONE: "a", "disk": "ssd"}, want=False),
    "one term must match": Place(terms=(term(IN_B), term(IN_A))),
    "no term matches": Place(terms=(term(IN_B),), want=False),
    "all expressions of a term must match": Place(terms=(term(IN_A, IN_B),), want=False),
    "no terms match no node": Place(terms=(), want=False),
    "an empty term matches no node": Place(terms=(term(),), want=False),
    "an empty term does not spoil the others": Place(terms=(term(), term(IN_A))),
    "a node by name": Place(terms=(term(fields=(NAMED,)),)),
    "another node by name": Place(terms=(term(fields=(requirement("metadata.name", "In", "node-b"),)),), want=False),
    "not a node by name": Place(terms=(term(fields=(requirement("metadata.name", "NotIn", "node-b"),)),)),
    "names and labels must match": Place(terms=(term(IN_B, fields=(NAMED,)),), want=False),
    "two names in one expression are not allowed": Place(
        terms=(term(fields=(requirement("metadata.name", "In", "node-a", "node-b"),)),), want=False
    ),
    "only the name is a field": Place(terms=(term(fields=(requirement("spec.x", "NotIn", "y"),)),), want=False),
    "Exists is no operator for fields": Place(
        terms=(term(fields=(requirement("metadata.name", "Exists"),)),), want=False
    ),
    "Exists with a value is none either": Place(
        terms=(term(fields=(requirement("metadata.name", "Exists", "node-a"),)),), want=False
    ),
    "nodeSelector and affinity must match": Place(terms=(term(IN_A),), node_selector={"disk": "ssd"}, want=False),
}


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES.keys())
def test_where_a_pod_may_go(case: Place) -> None:
    required = None if case.terms is None else NodeSelector(node_selector_terms=case.terms)
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
    spec = pod_spec(node_selector=case.node_selector, affinity=affinity)
    assert matches_node_affinity(spec, node("node-a", labels={ZONE: "a"})) is case.want


def test_terms_alone_can_be_asked() -> None:
    assert matches_any_term([term(IN_B), term(IN_A)], node(labels={ZONE: "a"}))
    assert not matches_any_term([], node())


@dataclass(frozen=True)
class Tolerance:
    toleration: Toleration
    want: bool


TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
TOLERANCES = {
    "the same key, value and effect": Tolerance(
        Toleration(key="dedicated", operator="Equal", value="batch", effect="NoSchedule"), want=True
    ),
    "no operator is Equal": Tolerance(Toleration(key="dedicated", value="batch", effect="NoSchedule"), want=True),
    "another value": Tolerance(Toleration(key="dedicated", value="web", effect="NoSchedule"), want=False),
    "another key": Tolerance(Toleration(key="gpu", value="batch", effect="NoSchedule"), want=False),
    "another effect": Tolerance(Toleration(key="dedicated", value="batch", effect="NoExecute"), want=False),
    "no effect is any": Tolerance(Toleration(key="dedicated", value="batch"), want=True),
    "Exists takes any value": Tolerance(Toleration(key="dedicated", operator="Exists"), want=True),
    "Exists of another key": Tolerance(Toleration(key="gpu", operator="Exists"), want=False),
    "Exists without a key takes everything": Tolerance(Toleration(operator="Exists"), want=True),
    "Exists without a key takes one effect": Tolerance(Toleration(operator="Exists", effect="NoExecute"), want=False),
    "numeric operators are off": Tolerance(Toleration(key="dedicated", operator="Gt", value="1"), want=False),
    "an unknown operator": Tolerance(Toleration(key="dedicated", operator="Like", value="batch"), want=False),
}


@pytest.mark.parametrize("case", TOLERANCES.values(), ids=TOLERANCES.keys())
def test_what_a_toleration_puts_up_with(case: Tolerance) -> None:
    assert tolerates((case.toleration,), TAINT) is case.want
    assert (untolerated_taint((case.toleration,), (TAINT,)) is None) is case.want


def test_one_toleration_is_enough() -> None:
    assert tolerates((Toleration(key="other"), Toleration(key="dedicated", operator="Exists")), TAINT)
    assert not tolerates((), TAINT)


def test_the_first_taint_that_keeps_off_is_told() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    gone = Taint(key="gone", effect="NoExecute")
    assert untolerated_taint((), (soft,)) is None
    assert untolerated_taint((), (soft, gone, TAINT)) is gone
    assert untolerated_taint((Toleration(key="gone", operator="Exists"),), (soft, gone, TAINT)) is TAINT
