"""The report page of a plan in the cluster."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from berth_core import (
    MigrationPlan,
    MoveState,
    PlannedMove,
    PlanPhase,
    ResourceAmounts,
    Snapshot,
    agreeing,
    count,
    format_timestamp,
)
from berth_descheduler.outcome import freed_later
from berth_descheduler.planner import (
    Fragmentation,
    NodeUsage,
    matches_record,
    measure_nodes,
    read_record,
    resource_type_of,
)
from berth_descheduler.planner.sentences import Figure
from berth_descheduler.planner.waves import longest_chain
from berth_descheduler.report.node_map import NodeMaps, draw_maps
from berth_descheduler.report.page import (
    LISTED_MOVES,
    Occasion,
    Promise,
    ReportPage,
    Table,
    Tone,
    list_troubles,
    list_waves,
    settings_table,
)
from berth_descheduler.report.prices import NO_PRICES, Prices
from berth_descheduler.report.stakes import stakes_in_words
from berth_descheduler.report.stored_plans import (
    WISHED,
    held_back_by,
    methods_in_words,
    promises,
    terms_in_words,
    what_to_do,
)

_TONES: Final = {
    PlanPhase.SUCCEEDED: Tone.WELL,
    PlanPhase.PARTIAL: Tone.BADLY,
    PlanPhase.FAILED: Tone.BADLY,
    PlanPhase.ABORTED: Tone.BADLY,
}
_THEN: Final = "when planned"
_NOW: Final = "now"
_AFTER: Final = "after, as planned"


def stored_plan_page(
    plan: MigrationPlan, snapshot: Snapshot, occasion: Occasion, prices: Prices = NO_PRICES
) -> ReportPage:
    """Return the page of a plan; `snapshot` has the current nodes and pods."""
    spec, is_over = plan.spec, plan.phase.terminal
    achieved = plan.status.achieved
    freed_nodes, freeing_nodes = (achieved.freed_nodes, achieved.freeing_nodes) if achieved else ((), ())
    planned_nodes = spec.predicted.freed_nodes if spec.predicted else ()
    stakes = stakes_in_words(spec.predicted, prices) if spec.predicted else ()
    statuses = plan.move_statuses
    return ReportPage(
        tone=_TONES.get(plan.phase, Tone.PLANNED),
        kind=f"Plan {plan.metadata.name}, {plan.phase.value}",
        headline=plan.status.message or _headline(plan),
        notes=tuple(
            filter(None, (*stakes, *held_back_by(plan), what_to_do(plan), _origin(plan), methods_in_words(plan)))
        ),
        cluster=occasion.cluster,
        made_at=format_timestamp(occasion.made_at),
        figures=tuple(_figures(plan)),
        promises=tuple(Promise(*row, kept=_is_kept(*row)) for row in promises(plan)) if is_over else (),
        not_freed=tuple(sorted(set(planned_nodes) - {*freed_nodes, *freeing_nodes})) if is_over else (),
        troubles=list_troubles(spec.moves, statuses) if is_over else (),
        maps=_draw(plan, snapshot) if snapshot.nodes else None,
        freed_nodes=freed_nodes if is_over else planned_nodes,
        room=_room_table(plan) if spec.rooms else None,
        waves=tuple(list_waves(spec.moves, statuses if plan.status.moves else ())),
        more_moves=max(0, len(spec.moves) - LISTED_MOVES),
        settings=settings_table(_settings(plan)),
    )


def forecast(now: Fragmentation, moves: Sequence[PlannedMove]) -> Fragmentation:
    """Return the use of nodes after some moves have landed."""
    changes_by_node: defaultdict[str, ResourceAmounts] = defaultdict(ResourceAmounts.empty)
    pods: Counter[str] = Counter()
    for move in moves:
        amounts = ResourceAmounts.from_quantities(move.requests).plus(ResourceAmounts({"pods": 1}))
        changes_by_node[move.source] = changes_by_node[move.source].minus(amounts)
        pods[move.source] -= 1
        if move.target:
            changes_by_node[move.target] = changes_by_node[move.target].plus(amounts)
            pods[move.target] += 1
    return Fragmentation(
        tuple(
            NodeUsage(
                node.name,
                node.allocatable,
                node.requested.plus(changes_by_node[node.name]),
                max(0, node.pods + pods[node.name]),
            )
            for node in now.nodes
        )
    )


def _draw(plan: MigrationPlan, snapshot: Snapshot) -> NodeMaps:
    """Return the nodes as they are now and, as far as these differ, when planned and after the plan."""
    states = _states(plan, snapshot)
    nodes_before, resource = plan.spec.nodes_before, _resource(plan)
    if (
        nodes_before is None
        or matches_record(nodes_before, states[_NOW])
        or (state_then := read_record(nodes_before)) is None
    ):
        return draw_maps(states, resource)
    if nodes_before.left_out:
        noted_names = {usage.name for usage in nodes_before.nodes}
        states = {title: _only(state, noted_names) for title, state in states.items()}
    return draw_maps({_THEN: state_then, **states}, resource, left_out=nodes_before.left_out)


def _states(plan: MigrationPlan, snapshot: Snapshot) -> dict[str, Fragmentation]:
    """Return the state now and, if moves remain, the state after them."""
    now = measure_nodes(snapshot)
    if plan.phase.terminal:
        return {_NOW: now}
    present_pods = {(pod.metadata.uid, pod.spec.node_name) for pod in snapshot.pods if not pod.is_terminal}
    moves_left = [move for move in plan.spec.moves if (move.pod_uid, move.source) in present_pods]
    return {_NOW: now, _AFTER: forecast(now, moves_left)} if moves_left else {_NOW: now}


def _only(state: Fragmentation, names: Collection[str]) -> Fragmentation:
    return Fragmentation(tuple(node for node in state.nodes if node.name in names))


def _resource(plan: MigrationPlan) -> str:
    if plan.spec.nodes_before is not None:
        return plan.spec.nodes_before.resource
    return resource_type_of(plan.spec.objective)


def _headline(plan: MigrationPlan) -> str:
    if plan.phase is PlanPhase.REQUESTED:
        return f"A run of policy {plan.spec.policy} was asked for; it is not planned yet."
    predicted, moves = plan.spec.predicted, PlannedMove.count_all(plan.spec.moves)
    if predicted is None:
        return f"{moves}."
    free = agreeing(len(plan.spec.moves), "free")
    freed_text = (
        f" {free} {len(predicted.freed_nodes)} of {count(predicted.nodes, 'node')}" if predicted.freed_nodes else ""
    )
    chain = longest_chain([move.wave for move in plan.spec.moves], [move.after for move in plan.spec.moves])
    waves_text = f" in {count(predicted.waves, 'wave')}" if chain > 1 else ""
    return f"{moves}{waves_text}{freed_text}."


def _origin(plan: MigrationPlan) -> str:
    spec = plan.spec
    policy = f" of policy {spec.policy}" if spec.policy else ""
    return f"Made {plan.metadata.creation_timestamp or ''} by a {spec.trigger} run{policy}{terms_in_words(spec)}."


def _figures(plan: MigrationPlan) -> Iterator[Figure]:
    predicted, achieved = plan.spec.predicted, plan.status.achieved
    landed_pods = sum(status.state is MoveState.LANDED for status in plan.move_statuses)
    evictions = sum(move.is_eviction for move in plan.spec.moves)
    yield Figure("landed on target", str(landed_pods), f"of {count(len(plan.spec.moves) - evictions, 'pod')}")
    if evictions:
        evicted_pods = sum(status.state is MoveState.REMOVED for status in plan.move_statuses)
        yield Figure("evicted without a place", str(evicted_pods), f"of {count(evictions, 'pod')}")
    if predicted is not None and predicted.freed_nodes:
        freed_nodes, freed_later_text = (len(achieved.freed_nodes), freed_later(achieved)) if achieved else (0, "")
        yield Figure("nodes freed", str(freed_nodes), f"of {len(predicted.freed_nodes)} planned{freed_later_text}")
    if achieved is not None:
        yield Figure("pods without a node", str(achieved.pending_pods), "at the end")
        yield Figure("took", f"{achieved.seconds:.1f} s", f"in {count(predicted.waves, 'wave')}" if predicted else "")


def _room_table(plan: MigrationPlan) -> Table:
    pairs = zip(plan.spec.rooms, plan.room_statuses, strict=True)
    rows = (
        (room.name, ", ".join(room.nodes), room_status.state.value, room_status.reason, room_status.message)
        for room, room_status in pairs
    )
    return Table(("for", "on", "state", "reason", "message"), tuple(rows))


def _is_kept(label: str, planned: str, achieved: str) -> bool:
    """Return whether a row, whose texts start with numbers, was achieved as planned."""
    wanted_number, reached_number = (int(text.split()[0]) if text else 0 for text in (planned, achieved))
    return reached_number >= wanted_number if label in WISHED else reached_number <= wanted_number


def _settings(plan: MigrationPlan) -> dict[str, Any]:
    objective = plan.spec.objective
    return {"plugin": objective.plugin, "strategy": objective.strategy, **objective.args}
