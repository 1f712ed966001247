"""What a plan of any goal does, costs and brings, in sentences and figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from berth_core import CPU, MEMORY, amount_in_words, count, first_few, kubectl_command, percent, readable_quantities
from berth_descheduler.framework.refusals import RefusalReason, Refused, RefusedKind
from berth_descheduler.planner import Fragmentation, Plan, requested_share
from berth_descheduler.planner.sentences import in_waves
from berth_descheduler.plugins import goal_of

_LISTED_PODS: Final = 6
_NO_TARGETS: Final = (
    "All nodes are control-plane nodes, where no place is held unless --control-plane-nodes is set, for the planner "
    "and for the operator."
)


def summarise_plan(plan: Plan) -> str:
    """Return what a plan does, why it has no targets, and what holds it back."""
    no_targets = [_NO_TARGETS] if plan.control_plane_only else []
    sentence = goal_of(plan.objective).sentence(plan)
    return " ".join([sentence, *no_targets, *(restriction.message for restriction in plan.restrictions)])


def missing_in_words(plan: Plan) -> tuple[str, ...]:
    """Return what the snapshot lacks, what was assumed, and the remedy."""
    if not plan.missing_kinds:
        return ()
    lacking_kinds = (f"The snapshot lacks {kind.value}; assumed: {kind.assumed}." for kind in plan.missing_kinds)
    return (*lacking_kinds, f"To get all: {kubectl_command(plan.missing_kinds)}")


def judge_plan(plan: Plan) -> str:
    """Return how good a plan is, "" if nothing is known or asked."""
    return goal_of(plan.objective).judgement(plan)


def cost_in_words(plan: Plan) -> str:
    """Return what a plan disturbs: pods, controllers and priorities."""
    cost = plan.cost
    if not cost.priorities:
        return "Nothing is disturbed."
    lowest_priority, highest_priority = cost.priorities[-1][0], cost.priorities[0][0]
    span = (
        f"priority {highest_priority}"
        if lowest_priority == highest_priority
        else f"priorities {lowest_priority} to {highest_priority}"
    )
    pods, controllers = count(cost.pods, "pod"), count(cost.controllers, "controller")
    chain = f",{in_waves(plan)}; the longest chain is {plan.longest_chain} moves" if plan.has_order else ""
    return f"It restarts {pods} of {controllers}, of {span}{chain}."


def competing_pods_in_words(plan: Plan) -> str:
    """Return which waiting pods could take the room of others."""
    named_pods = first_few(list(plan.competing_pods), _LISTED_PODS)
    return (
        f"No taint keeps these waiting pods off the room while it is made, for they tolerate every one: {named_pods}."
    )


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """What stays for one reason, in the plan's order."""

    kind: RefusedKind
    reason: RefusalReason
    refused: tuple[Refused, ...]


def compare_states(plan: Plan, states: Sequence[Fragmentation]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return rows of a label and a text for each state of the plan's cluster."""
    rows = [
        ("nodes with pods", [str(_used_nodes(state)) for state in states]),
        ("empty nodes", [str(len(state.empty_nodes)) for state in states]),
    ]
    for resource in shown_resources(plan):
        rows.append((f"{resource} requested of nodes in use", [_used_share(state, resource) for state in states]))
        rows.append(
            (
                f"largest free {resource}",
                [amount_in_words(resource, max(0, state.largest_free(resource))) for state in states],
            )
        )
    for shape in plan.before.usual_shapes:
        shape_text = ", ".join(f"{name} {amount}" for name, amount in readable_quantities(shape).items())
        rows.append((f"room for pods of {shape_text}", [str(state.fits(shape)) for state in states]))
    return tuple((label, tuple(texts)) for label, texts in rows)


def shown_resources(plan: Plan) -> tuple[str, ...]:
    """Return the resources to show: the plan's own, cores, memory."""
    shown = dict.fromkeys((plan.settings.resource_type, CPU, MEMORY))
    return tuple(resource for resource in shown if resource in plan.before.resources)


def group_refusals(refused: Iterable[Refused]) -> tuple[RefusalGroup, ...]:
    """Return what stays, by kind and reason, the most frequent first."""
    groups: dict[tuple[RefusedKind, RefusalReason], list[Refused]] = {}
    for refusal in refused:
        groups.setdefault((refusal.kind, refusal.reason), []).append(refusal)
    ranked_groups = sorted(
        groups.items(), key=lambda key_and_refusals: (-len(key_and_refusals[1]), key_and_refusals[0])
    )
    return tuple(RefusalGroup(kind, reason, tuple(refusals)) for (kind, reason), refusals in ranked_groups)


def name_refused(refused: Refused) -> str:
    if refused.kind is RefusedKind.NODE:
        return refused.node
    return f"{refused.namespace}/{refused.name}".lstrip("/")


def _used_nodes(fragmentation: Fragmentation) -> int:
    return len(fragmentation.nodes) - len(fragmentation.empty_nodes)


def _used_share(fragmentation: Fragmentation, name: str) -> str:
    """Return the requested share on nodes with pods, in percent."""
    return percent(requested_share((node for node in fragmentation.nodes if node.pods), name))
