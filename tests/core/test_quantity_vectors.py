import json
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

from berth_core.quantities import QuantityError, parse_quantity
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


def is_refused(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError as error:
        return error.value == text
    return False


def test_what_the_reference_refuses_is_refused() -> None:
    taken = [text for text in REFUSED if not is_refused(text)]
    assert not taken


def test_a_number_is_exactly_the_references() -> None:
    read = {text: parse_quantity(text) for text, _ in ACCEPTED}
    other = [(text, read[text], answer) for text, answer in ACCEPTED if read[text].nanos != exact_nanos(answer["dec"])]
    assert not other


def test_units_thousandths_and_billionths_are_the_references_wherever_it_does_not_overflow() -> None:
    other = []
    for text, answer in ACCEPTED:
        quantity = parse_quantity(text)
        ours = {"milli": quantity.milli(), "nano": quantity.nano(), "value": quantity.value()}
        if quantity.nanos >= 0 or small_form(text) is not None:
            exact = {name: number for name, number in ours.items() if abs(number) <= MOST}
            if exact != {name: answer[name] for name in exact}:
                other.append((text, exact, answer))
    assert not other


def test_the_references_own_answer_follows_from_the_exact_number() -> None:
    other = []
    for text, answer in ACCEPTED:
        want = {name: answer[name] for name in ("milli", "nano", "value")}
        if (follows := reference_answers(text, parse_quantity(text).nanos)) != want:
            other.append((text, follows, want))
    assert not other
