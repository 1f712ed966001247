"""Gain and risk of a plan, a sentence each."""

from datetime import timedelta

from berth_core import CPU, Predicted, count, span_in_words
from berth_descheduler.report.prices import NO_PRICES, Prices, worth_in_words


def stakes_in_words(predicted: Predicted, prices: Prices = NO_PRICES) -> tuple[str, ...]:
    """Return gain and risk, a sentence each, as far as there is any."""
    return tuple(filter(None, (gain_in_words(predicted, prices), risk_in_words(predicted))))


def gain_in_words(predicted: Predicted, prices: Prices = NO_PRICES) -> str:
    """Return which amounts the freed nodes have, and what these cost; "" without any."""
    if not predicted.freed_nodes:
        return ""
    freed_resources = predicted.freed_resources
    amounts = ", ".join(
        f"{resource} {freed_resources[resource]}"
        for resource in sorted(freed_resources, key=lambda resource: (resource != CPU, resource))
    )
    gain = f"Gain: {count(len(predicted.freed_nodes), 'node')}{f' with {amounts}' if amounts else ''}"
    return f"{gain}{worth_in_words(predicted, prices)}."


def risk_in_words(predicted: Predicted) -> str:
    """Return what may hurt the pods that are moved, and how long it may take; "" without any."""
    parts = (
        (predicted.pods_without_budget, "with no disruption budget"),
        (predicted.only_pods, "with no sibling"),
        (predicted.stateful_set_pods, "of StatefulSets"),
    )
    if not (predicted.expected_seconds or any(risk_count for risk_count, _ in parts)):
        return ""  # without moves, or of a plan that does not say it
    risks = [f"{risk_count} {risk}" for risk_count, risk in parts if risk_count]
    total = count(predicted.moves + predicted.evictions, "pod")
    with_risks = f", {', '.join(risks)}" if risks else ", all with a disruption budget and siblings"
    duration_text = span_in_words(timedelta(seconds=predicted.expected_seconds))
    return f"Risk: {total} restarted{with_risks}; about {duration_text} by grace periods and earlier starts."
