"""What plans say that free nodes."""

from berth_core import agreeing, count
from berth_descheduler.planner import Plan
from berth_descheduler.planner.sentences import count_moves, instead_of, pods_moved_instead
from berth_descheduler.planner.weights import format_weight


def moves_single_pods(plan: Plan) -> bool:
    """Return whether the plan moves single pods instead of emptying nodes."""
    return plan.objective.args.get("wholeNodes") is False


def describe_freed_nodes(plan: Plan) -> str:
    """Return which nodes a plan frees, in a sentence."""
    nodes = len(plan.before.nodes)
    single = moves_single_pods(plan)
    if not plan.moves:
        why_empty = (
            f"no pod of the {nodes} nodes can be moved" if single else f"none of the {nodes} nodes can be emptied"
        )
        return f"Nothing to move: {why_empty} by these rules."
    moves, free = count_moves(plan), agreeing(len(plan.moves), "free")
    price = f", {plan.predicted.freed_price_per_hour} an hour" if plan.weights and plan.freed_nodes else ""
    filled = f" and fill {count(len(plan.filled_nodes), 'empty one')}" if plan.weights and plan.filled_nodes else ""
    freed_phrase = f"{len(plan.freed_nodes)} of {count(nodes, 'node')}{filled}{price}"
    number = len(plan.after.empty_nodes)
    empty_phrase = f"{number} {'is' if number == 1 else 'are'} empty then"
    if single:
        sources = count(len({move.source for move in plan.moves}), "node")
        take = agreeing(len(plan.moves), "take")
        return f"{moves} {take} single pods off {sources} and {free} {freed_phrase}; {empty_phrase}."
    moves_alone = sum(move.stands_alone for move in plan.moves)
    plugin_moves = (
        f" {moves_alone} of the moves {'is' if moves_alone == 1 else 'are'} for pods that plugins name."
        if moves_alone
        else ""
    )
    return f"{moves} {free} {freed_phrase}; {empty_phrase}.{plugin_moves}"


def freed_money(plan: Plan) -> int | None:
    """Return what the freed nodes cost an hour, in millionths; None where nodes have no prices."""
    weight = None if plan.quality is None else plan.quality.weight
    return None if weight is None else weight.reached


def nodes_freed_instead(better: Plan, plan: Plan) -> str:
    """Return what a plan brings that frees more nodes, or dearer ones."""
    if len(better.freed_nodes) > len(plan.freed_nodes):
        return f"{instead_of(len(better.freed_nodes), len(plan.freed_nodes), 'node')} could be freed"
    new_price, price = freed_money(better), freed_money(plan)
    if new_price is not None and new_price > (price or 0):
        return f"nodes worth {format_weight(new_price)} an hour instead of {format_weight(price or 0)} could be freed"
    return pods_moved_instead(better, plan)
