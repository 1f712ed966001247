"""Label selectors in one line, as kubectl and the upstream descheduler read them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import LabelSelector, LabelSelectorRequirement
from berth_core.errors import InputError
from berth_core.selector_texts import format_selector, parse_selector, read_selector
from berth_core.selectors import matches_labels

LABELS = {"pool": "batch", "zone": "a", "example.com/gpu": "", "size": "xl"}
READ = {
    "": True,
    " ": True,
    "pool=batch": True,
    "pool==batch": True,
    "pool=web": False,
    "pool!=web": True,
    "team!=web": True,
    "pool != batch": False,
    "zone in (a, b)": True,
    "zone in (b)": False,
    "zone notin (b,c)": True,
    "team notin (b)": True,
    "zone notin (a)": False,
    "pool": True,
    "team": False,
    "!team": True,
    "! pool": False,
    "example.com/gpu": True,
    "example.com/gpu=": True,
    " pool = batch , zone in (a),!team ": True,
    "pool=batch,team": False,
}


@pytest.mark.parametrize(("text", "want"), READ.items())
def test_a_text_selects_as_kubectl_would(text: str, want: bool) -> None:  # noqa: FBT001 - a column of the table
    assert matches_labels(parse_selector(text), LABELS) is want


WRONG = [
    "pool batch",
    "=batch",
    "pool=batch,",
    ",pool",
    "zone in",
    "zone in a",
    "zone in (a",
    "!pool=batch",
    "a=b=c",
    "-a",
    "a b=c",
]


@pytest.mark.parametrize("text", [*WRONG, None, 3, {"pool": "batch"}])
def test_a_text_that_is_no_selector_is_refused(text: object) -> None:
    with pytest.raises(InputError, match="a label selector such as pool=batch") as raised:
        parse_selector(text)
    assert (raised.value.field, raised.value.value) == ("selector", text)


keys = st.from_regex(r"([a-z]{1,5}/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,5}[a-zA-Z0-9])?", fullmatch=True)
values = st.from_regex(r"([a-zA-Z0-9]([-_.a-zA-Z0-9]{0,5}[a-zA-Z0-9])?)?", fullmatch=True)
requirements = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        key=keys,
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(values, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(LabelSelectorRequirement, key=keys, operator=st.sampled_from(["Exists", "DoesNotExist"])),
)


@given(st.lists(requirements, max_size=4).map(tuple))
def test_what_is_written_is_read_again(expressions: tuple[LabelSelectorRequirement, ...]) -> None:
    selector = LabelSelector(match_expressions=expressions)
    assert parse_selector(format_selector(selector)) == selector


@given(st.text(alphabet="ab1=!,() in/.-_", max_size=20))
def test_any_text_is_a_selector_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        assert parse_selector(format_selector(parse_selector(text))) == parse_selector(text)


def test_a_mapping_is_read_as_the_api_has_it() -> None:
    raw = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}

    found = read_selector(raw)

    assert format_selector(found) == "app=web,tier in (a)"
    assert read_selector({}) == LabelSelector()
