import json
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest

from berth_core.quantity import Quantity, QuantityError, parse_quantity
from core.int64_overflow import MOST, reference_answers, small_form

VECTORS: list[tuple[str, dict[str, Any] | None]] = [
    (text, answer)
    for text, answer in json.loads((Path(__file__).parents[1] / "data" / "quantity_vectors.json").read_text())[
        "vectors"
    ]
]
ACCEPTED = [(text, answer) for text, answer in VECTORS if answer is not None]
REFUSED = [text for text, answer in VECTORS if answer is None]


def exact_nanos(decimal: str) -> int:
    with localcontext(prec=500):
        nanos = Decimal(decimal).scaleb(9)
        assert nanos == nanos.to_integral_value()
        return int(nanos)


def test_all_vectors_are_there() -> None:
    assert (len(VECTORS), len(ACCEPTED), len(REFUSED)) == (933, 529, 404)


@pytest.mark.parametrize("text", REFUSED)
def test_what_the_reference_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert caught.value.value == text


@pytest.mark.parametrize(("text", "want"), [(text, answer["dec"]) for text, answer in ACCEPTED])
def test_a_number_is_exactly_the_references(text: str, want: str) -> None:
    assert parse_quantity(text) == Quantity(exact_nanos(want))


@pytest.mark.parametrize(("text", "answer"), ACCEPTED)
def test_units_thousandths_and_billionths_are_the_references_wherever_it_does_not_overflow(
    text: str, answer: dict[str, Any]
) -> None:
    quantity = parse_quantity(text)
    ours = {"milli": quantity.milli(), "nano": quantity.nano(), "value": quantity.value()}
    if quantity.nanos >= 0 or small_form(text) is not None:
        exact = {name: number for name, number in ours.items() if abs(number) <= MOST}
        assert exact == {name: answer[name] for name in exact}


@pytest.mark.parametrize(("text", "answer"), ACCEPTED)
def test_the_references_own_answer_follows_from_the_exact_number(text: str, answer: dict[str, Any]) -> None:
    want = {name: answer[name] for name in ("milli", "nano", "value")}
    assert reference_answers(text, parse_quantity(text).nanos) == want
