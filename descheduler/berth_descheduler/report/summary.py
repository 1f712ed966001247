"""A plan's effect, quality, cost and gain, in sentences and figures."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias

from berth_core import (
    CPU,
    MEMORY,
    STARVING_JOBS,
    PlannedMove,
    Predicted,
    count,
    first_few,
    format_amount,
    kubectl_command,
    parse_quantity,
    percent,
    span_in_words,
)
from berth_descheduler.framework.refusals import RefusalReason, Refused, RefusedKind
from berth_descheduler.planner import Fragmentation, Plan, Prover, Quality, format_money, requested_share
from berth_descheduler.plugins import Goal, drain_of, goal_of

_LISTED_PODS: Final = 6
_LISTED_ROOMS: Final = 3
_LISTED_NODES: Final = 3
_MILLION: Final = 1_000_000
_NO_TARGETS: Final = (
    "All nodes are control-plane nodes, where no place is held unless --control-plane-nodes is set, for the planner "
    "and for the operator."
)


def summarise_plan(plan: Plan) -> str:
    """Return what a plan does, why it has no targets, and what holds it back."""
    no_targets = [_NO_TARGETS] if plan.control_plane_only else []
    return " ".join([_what_it_does(plan), *no_targets, *(restriction.message for restriction in plan.restrictions)])


def _what_it_does(plan: Plan) -> str:
    match goal_of(plan.objective):
        case Goal.MOVE_PODS:
            return _summarise_single(plan)
        case Goal.MAKE_ROOM:
            return _summarise_room(plan)
        case Goal.LOWER_FRAGMENTATION:
            return _summarise_fragmentation(plan)
        case Goal.FREE_NODES:
            return _summarise_freed(plan)


def _summarise_freed(plan: Plan) -> str:
    """Return which nodes a plan frees, in a sentence."""
    nodes = len(plan.before.nodes)
    single = _moves_single_pods(plan)
    if not plan.moves:
        what = f"no pod of the {nodes} nodes can be moved" if single else f"none of the {nodes} nodes can be emptied"
        return f"Nothing to move: {what} by these rules."
    moves, waves = PlannedMove.count_all(plan.moves), count(plan.waves, "wave")
    price = f", {plan.predicted.freed_price_per_hour} an hour" if plan.price and plan.freed_nodes else ""
    freed = f"{len(plan.freed_nodes)} of {count(nodes, 'node')}{price}"
    number = len(plan.after.empty_nodes)
    empty = f"{number} {'is' if number == 1 else 'are'} empty then"
    if single:
        sources = count(len({move.source for move in plan.moves}), "node")
        return f"{moves} in {waves} take single pods off {sources} and free {freed}; {empty}."
    alone = sum(move.stands_alone for move in plan.moves)
    named = f" {alone} of the moves {'is' if alone == 1 else 'are'} for pods that plugins name." if alone else ""
    return f"{moves} in {waves} free {freed}; {empty}.{named}"


def _moves_single_pods(plan: Plan) -> bool:
    """Return whether the plan moves single pods instead of emptying nodes."""
    return plan.objective.args.get("wholeNodes") is False


def _summarise_single(plan: Plan) -> str:
    """Return what happens to the pods that plugins name, in a sentence."""
    if (drain := drain_of(plan.objective)) is not None:
        return _summarise_drain(plan, drain.nodes)
    stay = sum(one.kind is RefusedKind.POD for one in plan.refused)
    staying = f" {count(stay, 'pod')} {'stays' if stay == 1 else 'stay'} that could not be moved." if stay else ""
    if not plan.moves:
        return f"Nothing to move: {plan.objective.plugin} {'could move no pod' if stay else 'names no pod'}.{staying}"
    moves, waves = PlannedMove.count_all(plan.moves), count(plan.waves, "wave")
    return f"{moves} in {waves} for pods that {plan.objective.plugin} names.{staying}"


def _summarise_drain(plan: Plan, nodes: Collection[str]) -> str:
    """Return how many pods leave the nodes that are drained, in a sentence."""
    stay = len(plan.pods_staying_on(nodes))
    staying = f" {count(stay, 'pod')} cannot go." if stay else ""
    if not plan.moves:
        return f"Nothing to move off {count(len(nodes), 'node')}.{staying}"
    moves, waves = PlannedMove.count_all(plan.moves), count(plan.waves, "wave")
    return f"{moves} in {waves} drain {count(len(nodes), 'node')}.{staying}"


def _summarise_starving(plan: Plan) -> str:
    """Return what is done for jobs that starve, in a sentence."""
    kept = [f"{room.name} on {first_few(room.nodes, _LISTED_NODES)}" for room in plan.waits]
    parts = [_summarise_made(plan)] if plan.room else []
    if kept:
        parts.append(f"Nodes are kept for {first_few(kept, _LISTED_ROOMS)} until pods there have ended.")
    reasons = Counter(one.reason.value for one in plan.refused)
    if reasons:
        told = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
        total = reasons.total()
        parts.append(
            f"Nothing is reserved for {count(total, 'job')} that {'starves' if total == 1 else 'starve'} ({told})."
        )
    return " ".join(parts) or "No job starves."


def _summarise_room(plan: Plan) -> str:
    """Return what the plan makes room for, in a sentence."""
    return _summarise_starving(plan) if plan.objective.plugin == STARVING_JOBS else _summarise_made(plan)


def _summarise_made(plan: Plan) -> str:
    if not plan.room:
        return _summarise_single(plan) if plan.moves else "Nothing waits for room."
    fitted, wanted = sum(room.fitted for room in plan.room), [room.wanted for room in plan.room]
    what = plan.room[0].name if len(plan.room) == 1 else count(len(plan.room), "kind") + " of pods"
    of = "" if None in wanted else f" of {sum(count or 0 for count in wanted)}"
    if not plan.moves:
        return f"Nothing to move: {fitted}{of} fit as it is ({what})."
    waves = count(plan.waves, "wave")
    return f"{PlannedMove.count_all(plan.moves)} in {waves} make room: {fitted}{of} fit then ({what})."


def _summarise_fragmentation(plan: Plan) -> str:
    """Return by how much a plan lowers the fragmentation, in a sentence."""
    change = plan.fragmentation
    if change is None:
        return _summarise_single(plan)
    of = f"of the free {change.resource} is fragmented for the workload"
    if not plan.moves:
        return f"Nothing to move: {percent(change.share_before)} {of}, and no move lowers that by these rules."
    moves, waves = PlannedMove.count_all(plan.moves), count(plan.waves, "wave")
    return f"{moves} in {waves}: {percent(change.share_after)} {of} then, {percent(change.share_before)} now."


def missing_in_words(plan: Plan) -> tuple[str, ...]:
    """Return what the snapshot lacks, what was assumed, and the remedy."""
    if not plan.missing_kinds:
        return ()
    lacking = (f"The snapshot lacks {kind.value}; assumed: {kind.assumed}." for kind in plan.missing_kinds)
    return (*lacking, f"To get all: {kubectl_command(plan.missing_kinds)}")


def counted_by(plan: Plan) -> str:
    """Return what the quality of a plan counts."""
    match goal_of(plan.objective):
        case Goal.MAKE_ROOM:
            return "pods"
        case Goal.LOWER_FRAGMENTATION:
            return "millionths of what is free made usable"
        case Goal.FREE_NODES | Goal.MOVE_PODS:
            return "freed nodes"


def judge_plan(plan: Plan) -> str:
    """Return how good a plan is.

    Returns "" if nothing is known or asked.
    """
    asks_for_nothing = goal_of(plan.objective) is Goal.MAKE_ROOM and not plan.room
    if plan.quality is not None and (least := least_fragmented(plan)) is not None:
        return _judge_fragmentation(least, plan.quality)
    return "" if plan.quality is None or asks_for_nothing else judge(plan.quality, what=counted_by(plan))


def least_fragmented(plan: Plan) -> Fraction | None:
    """Return the share of what is free below which no plan brings the fragmentation; None if it is not known."""
    change, quality = plan.fragmentation, plan.quality
    if change is None or quality is None or quality.is_snapshot_incomplete:
        return None
    if quality.proven_optimal:
        return change.share_after
    return max(Fraction(0), change.share_before - Fraction(quality.upper_bound, _MILLION))


def _judge_fragmentation(least: Fraction, quality: Quality) -> str:
    bound = (
        f"no plan within these limits leaves less than {percent(least)} fragmented (a bound that holds for any plan)"
    )
    text = f"Proven optimal: {bound}." if quality.proven_optimal else f"{bound[0].upper()}{bound[1:]}."
    return f"{text} The time limit ended the search." if quality.out_of_time else text


def judge(quality: Quality, *, what: str) -> str:
    """Return how good a plan is; `what` is what it counts."""
    if quality.is_snapshot_incomplete:
        return "How far it is from the best is not known: the snapshot lacks kinds of objects."
    by = "the exact solver" if quality.prover is Prover.EXACT else "a bound that holds for any plan"
    bound, gap = bound_and_gap(quality)
    most = f"{bound} {what}" if quality.money is None else f"{bound} an hour"
    if quality.proven_optimal and quality.proven_fewest_moves:
        text = f"Proven optimal: no plan reaches more than {most}, nor this with fewer moves ({by})."
    elif quality.proven_optimal:
        so_much = "this many need" if quality.money is None else "this much needs"
        least = f"{so_much} at least {count(quality.fewest_moves, 'move')}"
        text = f"Proven optimal: no plan reaches more than {most} ({by}); {least}."
    else:
        text = f"No plan reaches more than {most} ({by}): at most {gap} more than this one."
    return f"{text} The time limit ended the search." if quality.out_of_time else text


def bound_and_gap(quality: Quality) -> tuple[str, str]:
    """Return the upper bound of what counts, and how much more than the plan it is: money where nodes have prices."""
    if (money := quality.money) is None:
        return str(quality.upper_bound), str(quality.gap)
    return format_money(money.upper_bound), format_money(money.upper_bound - money.reached)


def unpriced_in_words(plan: Plan) -> tuple[str, ...]:
    """Return which nodes have no price, in a sentence; nothing if all have one, or none needs it."""
    if plan.price is None or not plan.price.unpriced:
        return ()
    named, number = first_few(list(plan.price.unpriced), _LISTED_PODS), count(len(plan.price.unpriced), "node")
    return (f"nodePrice says no price that can be read of {number}, counted 0: {named}.",)


def cost_in_words(plan: Plan) -> str:
    """Return what a plan disturbs, in a sentence."""
    cost = plan.cost
    if not cost.priorities:
        return "Nothing is disturbed."
    lowest, highest = cost.priorities[-1][0], cost.priorities[0][0]
    span = f"priority {highest}" if lowest == highest else f"priorities {lowest} to {highest}"
    pods, controllers = count(cost.pods, "pod"), count(cost.controllers, "controller")
    return f"It restarts {pods} of {controllers}, of {span}, in {count(plan.waves, 'wave')}."


def competing_pods_in_words(plan: Plan) -> str:
    """Return which pods could take the room of others, in a sentence."""
    named = first_few(list(plan.competing_pods), _LISTED_PODS)
    return f"No taint keeps these waiting pods off the room while it is made, for they tolerate every one: {named}."


# --- gain and risk ----------------------------------------------------------------------------------------------------

Prices: TypeAlias = Mapping[str, float]
"""What an hour of a resource costs, such as of a core, or of a node by `NODE`.

For plans that know no prices: one that was made by `nodePrice` says itself what it is worth.
"""

NO_PRICES: Final[Prices] = MappingProxyType({})
NODE: Final = "node"
_HOURS_OF_A_MONTH: Final = 730


def stakes_in_words(predicted: Predicted, prices: Prices = NO_PRICES) -> tuple[str, ...]:
    """Return gain and risk, a sentence each, where there is any."""
    return tuple(filter(None, (gain_in_words(predicted, prices), risk_in_words(predicted))))


def gain_in_words(predicted: Predicted, prices: Prices = NO_PRICES) -> str:
    """Return what the freed nodes have, and what that costs; "" without any."""
    if not predicted.freed_nodes:
        return ""
    freed = predicted.freed_resources
    amounts = ", ".join(f"{name} {freed[name]}" for name in sorted(freed, key=lambda name: (name != CPU, name)))
    said = f"Gain: {count(len(predicted.freed_nodes), 'node')}{f' with {amounts}' if amounts else ''}"
    if predicted.freed_price_per_hour:
        hourly = Decimal(predicted.freed_price_per_hour)
        return f"{said}, worth {hourly:,} an hour, {hourly * _HOURS_OF_A_MONTH:,.0f} a month."
    if not prices:
        return f"{said}."
    guessed = prices.get(NODE, 0.0) * len(predicted.freed_nodes)
    guessed += sum(_units(name, freed[name]) * price for name, price in prices.items() if name in freed)
    return f"{said}, worth {guessed:,.2f} an hour, {guessed * _HOURS_OF_A_MONTH:,.0f} a month."


def _units(name: str, amount: str) -> float:
    """Return how many units of a resource are paid for: cores, Gi of memory, pieces of others."""
    units = parse_quantity(amount).nano() / 1e9
    return units / (1 << 30) if name == MEMORY else units


def risk_in_words(predicted: Predicted) -> str:
    """Return what may hurt the pods that are moved, and how long it may take; "" without any."""
    parts = (
        (predicted.pods_without_budget, "with no disruption budget"),
        (predicted.only_pods, "with no sibling"),
        (predicted.stateful_set_pods, "of StatefulSets"),
    )
    if not (predicted.expected_seconds or any(number for number, _ in parts)):
        return ""  # without moves, or of a plan that does not say it
    said = [f"{number} {what}" for number, what in parts if number]
    total = count(predicted.moves + predicted.evictions, "pod")
    of = f", {', '.join(said)}" if said else ", all with a disruption budget and siblings"
    took = span_in_words(timedelta(seconds=predicted.expected_seconds))
    return f"Risk: {total} restarted{of}; about {took} by grace periods and earlier starts."


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """What stays for one reason, in the plan's order."""

    kind: RefusedKind
    reason: RefusalReason
    refused: tuple[Refused, ...]


def compare_states(plan: Plan, states: Sequence[Fragmentation]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return labels with a text for each state of the plan's cluster."""
    rows = [
        ("nodes with pods", [str(_used_nodes(state)) for state in states]),
        ("empty nodes", [str(len(state.empty_nodes)) for state in states]),
    ]
    for name in shown_resources(plan):
        rows.append((f"{name} requested of nodes in use", [_used_share(state, name) for state in states]))
        rows.append((f"largest free {name}", [format_amount(name, max(0, one.largest_free(name))) for one in states]))
    for shape in plan.before.usual_shapes:
        asked = ", ".join(f"{name} {amount}" for name, amount in shape.to_quantities().items())
        rows.append((f"room for pods of {asked}", [str(state.fits(shape)) for state in states]))
    return tuple((label, tuple(texts)) for label, texts in rows)


def compare_unused(plan: Plan) -> tuple[tuple[str, tuple[str, str]], ...]:
    """Return the share of free capacity that the first rooms, or the workload, cannot use."""
    rows = []
    if (change := plan.fragmentation) is not None:
        texts = percent(change.share_before), percent(change.share_after)
        rows.append((f"free {change.resource} fragmented for the workload", texts))
    for room in plan.room[:_LISTED_ROOMS]:
        unused_after = dict(room.unused_after)
        for name, unused in room.unused_before:
            texts = percent(unused), percent(unused_after.get(name, unused))
            rows.append((f"free {name} of no use to {room.name}", texts))
    return tuple(rows)


def shown_resources(plan: Plan) -> tuple[str, ...]:
    """Return the resources shown first: that of the plan, cores, memory."""
    shown = dict.fromkeys((plan.settings.resource_type, CPU, MEMORY))
    return tuple(name for name in shown if name in plan.before.resources)


def group_refusals(refused: Iterable[Refused]) -> tuple[RefusalGroup, ...]:
    """Return what stays, by kind and reason, the most frequent first."""
    groups: dict[tuple[RefusedKind, RefusalReason], list[Refused]] = {}
    for one in refused:
        groups.setdefault((one.kind, one.reason), []).append(one)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(RefusalGroup(kind, reason, tuple(found)) for (kind, reason), found in ranked)


def name_refused(refused: Refused) -> str:
    """Return the name of a refused node or pod."""
    if refused.kind is RefusedKind.NODE:
        return refused.node
    return f"{refused.namespace}/{refused.name}".lstrip("/")


def _used_nodes(fragmentation: Fragmentation) -> int:
    return len(fragmentation.nodes) - len(fragmentation.empty_nodes)


def _used_share(fragmentation: Fragmentation, name: str) -> str:
    """Return the requested share on nodes with pods, in percent."""
    return percent(requested_share((node for node in fragmentation.nodes if node.pods), name))
