"""Tests of properties on generated input: few examples in the quick tier, many in the deep tier."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

LEAVES_OUT = [HealthCheck.too_slow, HealthCheck.data_too_large]
QUICK = 6
DEEP = 100
MANY = (pytest.mark.deep, pytest.mark.examples)
"""Marks what tries a property that quick tests try, too, on many more examples."""


def holds_for(
    *strategies: SearchStrategy[Any], quick: int = QUICK, deep: int = DEEP, **named: SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Test a property twice: on few examples in the quick tier, on many in the deep tier."""

    def decorate(holds: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [quick, pytest.param(deep, marks=MANY)])
        def test(examples: int) -> None:
            chosen = settings(max_examples=examples, suppress_health_check=LEAVES_OUT)
            chosen(given(*strategies, **named)(holds))()

        test.__name__ = test.__qualname__ = holds.__name__
        test.__module__ = holds.__module__
        return test

    return decorate
