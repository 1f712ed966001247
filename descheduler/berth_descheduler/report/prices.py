"""What a plan saves, as money: by the prices of its nodes, or by those of `--price`."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import click

from berth_core import MEMORY, InputError, Predicted, count, first_few, parse_quantity
from berth_descheduler.planner import Plan

F = TypeVar("F", bound=Callable[..., Any])

Prices: TypeAlias = Mapping[str, float]
"""Hourly price per unit of a resource, such as a core, or per node for `NODE`.

They are for plans without prices: a plan by `nodePrice` says itself what it is worth.
"""

NO_PRICES: Final[Prices] = MappingProxyType({})
NODE: Final = "node"
_HOURS_OF_A_MONTH: Final = 730
_LISTED_NODES: Final = 6


def unpriced_in_words(plan: Plan) -> tuple[str, ...]:
    """Return which nodes have no price, in a sentence; () if all have one, or none needs it."""
    if plan.weights is None or not plan.weights.unknown:
        return ()
    named_nodes = first_few(list(plan.weights.unknown), _LISTED_NODES)
    node_count = count(len(plan.weights.unknown), "node")
    return (f"nodePrice says no price that can be read of {node_count}, counted 0: {named_nodes}.",)


def worth_in_words(predicted: Predicted, prices: Prices) -> str:
    """Return what the freed nodes cost, as the end of a sentence; "" where no price is known."""
    if predicted.freed_price_per_hour:
        hourly_price = Decimal(predicted.freed_price_per_hour)
        return f", worth {hourly_price:,} an hour, {hourly_price * _HOURS_OF_A_MONTH:,.0f} a month"
    if not prices:
        return ""
    freed_resources = predicted.freed_resources
    price_per_hour = prices.get(NODE, 0.0) * len(predicted.freed_nodes)
    price_per_hour += sum(
        _units(resource, freed_resources[resource]) * price
        for resource, price in prices.items()
        if resource in freed_resources
    )
    return f", worth {price_per_hour:,.2f} an hour, {price_per_hour * _HOURS_OF_A_MONTH:,.0f} a month"


def _units(name: str, amount: str) -> float:
    """Return how many units of a resource are paid for: cores, Gi of memory, otherwise pieces."""
    units = parse_quantity(amount).nano() / 1e9
    return units / (1 << 30) if name == MEMORY else units


def price_option(command: F) -> F:
    """Add `--price`, whose value is the hourly price of each resource."""
    text = "Hourly price of a node, a core, a Gi of memory or a device, such as node=0.40; may be repeated."
    return click.option("--price", multiple=True, metavar="NAME=AMOUNT", callback=_parse_prices, help=text)(command)


def refuse_second_prices(prices: Prices, *, is_priced: bool) -> None:
    """Raise `InputError` for `--price` with a plan that knows its nodes' prices: two answers could contradict."""
    if prices and is_priced:
        text = ", ".join(f"{priced_name}={amount:g}" for priced_name, amount in prices.items())
        raise InputError("--price", text, "nothing with a plan by nodePrice, which says itself what it is worth")


def _parse_prices(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
    """Return prices by name; raises `InputError` for anything that is not one."""
    prices: dict[str, float] = {}
    for text in given:
        priced_name, _, amount = text.partition("=")
        try:
            price = float(amount)
        except ValueError:
            price = math.nan
        if not priced_name or not 0 <= price < math.inf:
            raise InputError("--price", text, "a name and an amount from 0 on, such as node=0.40 or cpu=0.03")
        prices[priced_name] = price
    return prices
