"""Integers beyond 64 bits are found wherever in a file they are."""

import pytest

from berth_core.long_integers import _PART, cut_long_integers, has_cut_integer


@pytest.mark.parametrize("before", [0, _PART - 40, _PART - 30, _PART - 29, _PART - 28, _PART - 19, _PART - 10, _PART])
@pytest.mark.parametrize(("integer", "want_cut"), [("9223372036854775808", True), ("9223372036854775807", False)])
def test_an_integer_is_found_at_the_end_of_what_is_looked_through_at_a_time(
    *, before: int, integer: str, want_cut: bool
) -> None:
    raw = f'{{"a": "{"x" * before}", "b": {integer}}}'.encode()

    after = cut_long_integers(raw)

    assert has_cut_integer(after) is want_cut
    assert want_cut or after == raw
