from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.errors import InputError
from berth_core.quantities import Quantity, QuantityError, parse_quantity, read_whole_number

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
DIGITS = st.text(alphabet="0123456789", max_size=20)


def away_from_zero(number: Fraction) -> int:
    rounded = -(-abs(number.numerator) // number.denominator)
    return rounded if number >= 0 else -rounded


@given(sign=st.sampled_from(["", "+", "-"]), whole=DIGITS, fraction=DIGITS, suffix=st.sampled_from(sorted(SUFFIXES)))
def test_a_quantity_is_its_number_times_its_suffix(sign: str, whole: str, fraction: str, suffix: str) -> None:
    number = Fraction(int(f"0{whole}{fraction}"), 10 ** len(fraction)) * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    if suffix.endswith("i"):
        number = max(min(number, Fraction(2**63 - 1)), Fraction(1 - 2**63))
    nanos = away_from_zero(number * 10**9)
    quantity = parse_quantity(f"{sign}{whole}.{fraction}{suffix}")
    assert quantity.nano() == nanos
    assert quantity.milli() == away_from_zero(Fraction(nanos, 10**6))
    assert quantity.value() == away_from_zero(Fraction(nanos, 10**9))


@given(number=st.integers(-(10**12), 10**12), exponent=st.integers(-30, 30), letter=st.sampled_from("eE"))
def test_an_exponent_is_a_power_of_ten(number: int, exponent: int, letter: str) -> None:
    want = away_from_zero(Fraction(number) * Fraction(10) ** exponent * 10**9)
    assert parse_quantity(f"{number}{letter}{exponent}").nanos == want


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_a_clear_refusal(text: str) -> None:
    with suppress(QuantityError):
        assert isinstance(parse_quantity(text), Quantity)


@pytest.mark.parametrize(
    "text",
    ["1e1001", "1e999999999999", "9" * 300, "1." + "0" * 300, "1e" + "9" * 400],
    ids=["a large exponent", "an absurd exponent", "many digits", "many decimals", "an exponent of many digits"],
)
def test_a_number_longer_than_anybody_writes_is_refused_at_once(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


def test_a_tiny_number_is_the_least_there_is() -> None:
    assert parse_quantity("1e-999999") == Quantity(1)
    assert parse_quantity("-1e-999999") == Quantity(-1)


def test_the_arabic_digits_of_other_scripts_are_no_digits() -> None:
    with pytest.raises(QuantityError):
        parse_quantity("\u0661\u0662")


def test_a_refusal_is_an_error_of_the_input_that_quotes_the_text() -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity("5cores")
    assert str(caught.value) == "quantity is '5cores'; expected a quantity such as 500m, 2, 1.5Gi or 1e3"


def test_quantities_compare_by_their_number() -> None:
    assert parse_quantity("1") == parse_quantity("1000m") == parse_quantity("1e0")
    assert parse_quantity("1k") < parse_quantity("1Ki")
    assert len({parse_quantity("1Gi"), parse_quantity("1024Mi")}) == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", 0),
        ("007", 7),
        ("999", 999),
        ("1000", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        (" 1", None),
        ("\u0665", None),
        ("9" * 400, None),
        ("9" * 5000, None),
    ],
)
def test_a_number_of_a_note_is_read_up_to_a_limit(text: str, want: int | None) -> None:
    assert read_whole_number(text, most=999) == want
