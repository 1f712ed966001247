"""Owns the numbers of a plan that people compare, as texts: how the cluster lies in several states, what stays and why.

It does not own how they are laid out: `plan_tables` does for the terminal, `report_page` for the browser.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core.resources import CPU, MEMORY, format_amount
from berth_descheduler.plan_quality import usual_shapes
from berth_descheduler.planner import Fragmentation, NodeUsage, Plan
from berth_descheduler.refusals import RefusalReason, Refused, RefusedKind

_LISTED_ROOMS: Final = 3


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """What stays for one reason, in the plan's order."""

    kind: RefusedKind
    reason: RefusalReason
    refused: tuple[Refused, ...]


def compare_states(plan: Plan, states: Sequence[Fragmentation]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return what people compare, and a text of it for each state of the plan's cluster."""
    rows = [
        ("nodes with pods", [str(_used_nodes(state)) for state in states]),
        ("empty nodes", [str(len(state.empty_nodes)) for state in states]),
    ]
    for name in shown_resources(plan):
        rows.append((f"{name} requested of nodes in use", [_used_share(state, name) for state in states]))
        rows.append((f"largest free {name}", [format_amount(name, max(0, one.largest_free(name))) for one in states]))
    for shape in usual_shapes(plan):
        asked = ", ".join(f"{name} {amount}" for name, amount in shape.to_quantities().items())
        rows.append((f"room for pods of {asked}", [str(state.fits(shape)) for state in states]))
    return tuple((label, tuple(texts)) for label, texts in rows)


def compare_unused(plan: Plan) -> tuple[tuple[str, tuple[str, str]], ...]:
    """Return of the first things that room is made for how much of what is free they cannot use, before and after."""
    rows = []
    for room in plan.room[:_LISTED_ROOMS]:
        unused_after = dict(room.unused_after)
        for name, unused in room.unused_before:
            texts = percent(unused), percent(unused_after.get(name, unused))
            rows.append((f"free {name} of no use to {room.name}", texts))
    return tuple(rows)


def shown_resources(plan: Plan) -> tuple[str, ...]:
    """Return the resources that people look at first: the one that the plan goes by, cores, memory."""
    shown = dict.fromkeys((plan.settings.args.resource_type, CPU, MEMORY))
    return tuple(name for name in shown if name in plan.before.resources)


def group_refusals(refused: Iterable[Refused]) -> tuple[RefusalGroup, ...]:
    """Return what stays by kind and reason, the most frequent first."""
    groups: dict[tuple[RefusedKind, RefusalReason], list[Refused]] = {}
    for one in refused:
        groups.setdefault((one.kind, one.reason), []).append(one)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(RefusalGroup(kind, reason, tuple(found)) for (kind, reason), found in ranked)


def name_refused(refused: Refused) -> str:
    """Return what a refusal is about: a node by its name, a pod with its namespace if it has one."""
    if refused.kind is RefusedKind.NODE:
        return refused.node
    return f"{refused.namespace}/{refused.name}".lstrip("/")


def requested_share(nodes: Iterable[NodeUsage], resource: str) -> Fraction:
    """Return the share of what some nodes have of a resource that is requested; 0 where they have none."""
    listed = tuple(nodes)
    have = sum(node.allocatable.get(resource) for node in listed)
    return Fraction(sum(node.requested.get(resource) for node in listed), have) if have else Fraction(0)


def percent(share: Fraction) -> str:
    """Return a share in percent."""
    return f"{float(100 * share):.1f} %"


def _used_nodes(fragmentation: Fragmentation) -> int:
    return len(fragmentation.nodes) - len(fragmentation.empty_nodes)


def _used_share(fragmentation: Fragmentation, name: str) -> str:
    """Return the share of a resource that is requested on the nodes that have pods, in percent."""
    return percent(requested_share((node for node in fragmentation.nodes if node.pods), name))
