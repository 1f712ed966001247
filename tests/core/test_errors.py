import pytest

from berth_core.clock import TimestampError
from berth_core.durations import DurationError
from berth_core.errors import BerthError, InputError, PermanentError, RetryableError
from berth_core.quantities import QuantityError


def test_an_error_of_the_input_says_field_value_and_what_would_be_right() -> None:
    error = InputError("spec.ttl", "soon", "a duration")
    assert str(error) == "spec.ttl is 'soon'; expected a duration"
    assert (error.field, error.value, error.expected) == ("spec.ttl", "soon", "a duration")


def test_a_value_that_need_not_be_quoted_is_described() -> None:
    assert str(InputError("the snapshot", None, "a List", said="empty")) == "the snapshot is empty; expected a List"


def test_the_place_is_named_from_outside_inwards() -> None:
    error = QuantityError("x", field="cpu", expected="a quantity").within("requests").within("Pod a/b", joint=": ")
    assert str(error) == "Pod a/b: requests.cpu is 'x'; expected a quantity"
    assert InputError("x", None, "y", said="gone").within("z").said == "gone"


def test_a_long_value_is_cut() -> None:
    text = str(InputError("field", "x" * 500, "less"))
    assert len(text) < 120
    assert "..." in text


@pytest.mark.parametrize("error", [QuantityError("x"), DurationError("x"), TimestampError("x")])
def test_every_parser_refuses_with_an_error_of_the_input(error: BerthError) -> None:
    assert isinstance(error, InputError)
    assert "'x'" in str(error)


def test_a_retryable_error_may_say_when() -> None:
    assert RetryableError("busy").retry_after_seconds is None
    assert RetryableError("busy", retry_after_seconds=2.5).retry_after_seconds == 2.5
    assert str(RetryableError("busy")) == "busy"


def test_the_three_branches_exclude_one_another() -> None:
    branches = (InputError, RetryableError, PermanentError)
    assert all(issubclass(branch, BerthError) for branch in branches)
    assert not any(issubclass(a, b) for a in branches for b in branches if a is not b)
