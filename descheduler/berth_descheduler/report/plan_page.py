"""The report pages of a plan that was only made and of a run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from berth_core import MoveState, count, format_duration, format_timestamp, percent
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict, freed_later
from berth_descheduler.planner import Fragmentation, NodeUsage, Plan, RoomMade, requested_share
from berth_descheduler.planner.sentences import Figure, in_waves
from berth_descheduler.planner.weights import format_weight
from berth_descheduler.plugins import goal_of
from berth_descheduler.report.documents import describe_settings
from berth_descheduler.report.node_map import draw_maps
from berth_descheduler.report.page import (
    LISTED_MOVES,
    LISTED_NODES,
    LISTED_PER_REASON,
    Occasion,
    Promise,
    RefusalRow,
    RefusalSection,
    ReportPage,
    Table,
    Tone,
    list_troubles,
    list_waves,
    settings_table,
)
from berth_descheduler.report.prices import NO_PRICES, Prices, unpriced_in_words
from berth_descheduler.report.stakes import stakes_in_words
from berth_descheduler.report.summary import (
    compare_states,
    cost_in_words,
    group_refusals,
    judge_plan,
    missing_in_words,
    name_refused,
    summarise_plan,
)
from berth_descheduler.settings import CycleSettings


def plan_page(plan: Plan, occasion: Occasion, prices: Prices = NO_PRICES) -> ReportPage:
    return ReportPage(
        tone=Tone.PLANNED,
        kind="Plan, not carried out",
        headline=summarise_plan(plan),
        notes=(*stakes_in_words(plan.predicted, prices), *_judgement(plan)),
        cluster=occasion.cluster,
        made_at=format_timestamp(occasion.made_at),
        figures=(*_plan_figures(plan), *_quality_figures(plan)),
        settings=settings_table(describe_settings(plan.settings)),
        **_plan_parts(plan, {"before": plan.before, "after": plan.after}, None),
    )


def run_page(
    outcome: Outcome,
    plan: Plan | None,
    occasion: Occasion,
    *,
    measured: Fragmentation | None = None,
    settings: CycleSettings | None = None,
    prices: Prices = NO_PRICES,
) -> ReportPage:
    """Return the page of a run; `measured` is the cluster after it."""
    plan_outcome = outcome.plan
    described = {} if plan is None else describe_settings(plan.settings)
    return ReportPage(
        tone=_tone(outcome),
        kind=f"Run, {plan_outcome.phase.value}" if plan_outcome else f"Run, {outcome.verdict.value}",
        headline=outcome.sentence,
        notes=_run_notes(outcome, plan, prices),
        cluster=occasion.cluster,
        made_at=format_timestamp(occasion.made_at),
        figures=_figures_of_run(outcome, plan),
        promises=_promises(plan, plan_outcome, measured) if plan and plan_outcome else (),
        not_freed=_not_freed(plan, plan_outcome) if plan and plan_outcome else (),
        troubles=list_troubles(plan.moves, plan_outcome.statuses) if plan and plan_outcome else (),
        settings=settings_table(described | ({} if settings is None else _describe_run(settings))),
        seconds=_seconds_table(outcome),
        **({} if plan is None else _plan_parts(plan, _states(plan, measured), plan_outcome)),
    )


def _plan_parts(plan: Plan, states: Mapping[str, Fragmentation], done: PlanOutcome | None) -> dict[str, Any]:
    """Return what pages of plans and runs share."""
    *_, (title, last_state) = states.items()
    changed_nodes = _changed_nodes(plan, last_state)
    return {
        "maps": draw_maps(states, plan.settings.resource_type) if plan.before.nodes else None,
        "changed_nodes": Table(("node", "before", title, "pods"), changed_nodes[:LISTED_NODES])
        if changed_nodes
        else None,
        "more_changed_nodes": max(0, len(changed_nodes) - LISTED_NODES),
        "freed_nodes": done.freed_nodes if done else plan.freed_nodes,
        "fragmentation": _fragmentation_table(plan, states),
        "room": _room_table(plan.room) if plan.room else None,
        "waves": tuple(list_waves(plan.moves, done.statuses if done else ())),
        "more_moves": max(0, len(plan.moves) - LISTED_MOVES),
        "refusals": tuple(_refusals(plan)),
        "priorities": _priorities_table(plan) if plan.cost.priorities else None,
    }


def _states(plan: Plan, measured: Fragmentation | None) -> dict[str, Fragmentation]:
    if measured is None:
        return {"before": plan.before, "after, as planned": plan.after}
    if set(measured.nodes) == set(plan.after.nodes):
        return {"before": plan.before, "after, measured and as planned": measured}
    return {"before": plan.before, "after, as planned": plan.after, "after, as measured": measured}


def _tone(outcome: Outcome) -> Tone:
    if outcome.verdict is Verdict.DRY_RUN:
        return Tone.PLANNED
    return Tone.WELL if outcome.clean else Tone.BADLY


def _judgement(plan: Plan) -> tuple[str, ...]:
    judgements = (verdict,) if (verdict := judge_plan(plan)) else ()
    sentences = (*missing_in_words(plan), *plan.notes, *unpriced_in_words(plan), *judgements)
    return (*sentences, cost_in_words(plan)) if plan.moves else sentences


def _run_notes(outcome: Outcome, plan: Plan | None, prices: Prices) -> tuple[str, ...]:
    if plan is None:
        return ()
    summary = summarise_plan(plan)
    planned_notes = () if summary in outcome.sentence else (f"Planned: {summary}",)
    return (*planned_notes, *stakes_in_words(plan.predicted, prices), *_judgement(plan))


def _plan_figures(plan: Plan) -> Iterator[Figure]:
    empty_before, empty_after = len(plan.before.empty_nodes), len(plan.after.empty_nodes)
    yield from goal_of(plan.objective).figures(plan)
    yield Figure("nodes freed", str(len(plan.freed_nodes)), f"of {len(plan.before.nodes)}")
    if plan.weights is not None:
        total = format_weight(plan.weights.total(node.name for node in plan.before.nodes))
        yield Figure("worth an hour", plan.predicted.freed_price_per_hour, f"of {total}, what all nodes cost")
    yield Figure("empty nodes", f"{empty_before} → {empty_after}", f"of {len(plan.before.nodes)}")
    yield Figure("moves", str(len(plan.moves)), in_waves(plan).lstrip())
    yield Figure("restarted", count(plan.cost.pods, "pod"), f"of {count(plan.cost.controllers, 'controller')}")


def _quality_figures(plan: Plan) -> Iterator[Figure]:
    goal = goal_of(plan.objective)
    if plan.quality is not None and not plan.quality.is_snapshot_incomplete and goal.judgement(plan):
        yield from goal.bound_figures(plan)


def _figures_of_run(outcome: Outcome, plan: Plan | None) -> tuple[Figure, ...]:
    if plan is None:
        return ()
    first_figures = _plan_figures(plan) if outcome.plan is None else _done_figures(outcome.plan, plan)
    return (*first_figures, *_quality_figures(plan))


def _done_figures(done: PlanOutcome, plan: Plan) -> Iterator[Figure]:
    yield Figure("landed on target", str(done.landed_on_target), f"of {count(done.achieved.moves, 'pod')}")
    if done.evictions:
        yield Figure("evicted without a place", str(done.evicted), f"of {count(done.evictions, 'pod')}")
    if done.frees_nodes or done.freed_nodes:
        freed_later_text = freed_later(done.achieved)
        yield Figure("nodes freed", str(len(done.freed_nodes)), f"of {len(plan.freed_nodes)} planned{freed_later_text}")
    yield Figure("pods without a node", str(done.pending), "at the end")
    yield Figure("took", f"{done.seconds:.1f} s", f"in {count(plan.waves, 'wave')}")


def _promises(plan: Plan, done: PlanOutcome, measured: Fragmentation | None) -> tuple[Promise, ...]:
    planned_landings, planned_nodes = len(plan.moves) - plan.evictions, len(plan.freed_nodes)
    none_wanted = (
        ("ran elsewhere", done.count(MoveState.ELSEWHERE)),
        ("skipped", done.count(MoveState.SKIPPED)),
        ("failed", done.count(MoveState.FAILED)),
        ("pods without a node", done.pending),
    )
    landed_pods = done.landed_on_target
    rows = [
        Promise("pods landed on their target", str(planned_landings), str(landed_pods), landed_pods >= planned_landings)
    ]
    if plan.evictions:
        planned_evictions, evicted_pods = str(plan.evictions), str(done.evicted)
        rows.append(
            Promise("pods evicted without a place", planned_evictions, evicted_pods, done.evicted >= plan.evictions)
        )
    if done.frees_nodes or done.freed_nodes:
        rows.append(
            Promise(
                "nodes freed", str(planned_nodes), str(len(done.freed_nodes)), len(done.freed_nodes) >= planned_nodes
            )
        )
    rows += [Promise(label, "0", str(pod_count), pod_count == 0) for label, pod_count in none_wanted]
    if measured is not None and done.frees_nodes:  # room that is made is taken, so its nodes need not be empty
        planned_empty, empty_nodes = len(plan.after.empty_nodes), len(measured.empty_nodes)
        rows.append(
            Promise("empty nodes at the end", str(planned_empty), str(empty_nodes), empty_nodes >= planned_empty)
        )
    return tuple(rows)


def _not_freed(plan: Plan, done: PlanOutcome) -> tuple[str, ...]:
    """Return the nodes that should be free and are not."""
    free_nodes = {*done.freed_nodes, *done.freeing_nodes}
    return tuple(sorted(set(plan.freed_nodes) - free_nodes)) if done.frees_nodes else ()


def _changed_nodes(plan: Plan, last: Fragmentation) -> tuple[tuple[str, ...], ...]:
    """Return a row per changed node: freed ones first, then by name."""
    resource = plan.settings.resource_type
    after = {node.name: node for node in last.nodes}
    pairs = [(node, after[node.name]) for node in plan.before.nodes if node.name in after]
    changed_usages = [(usage_before, usage_after) for usage_before, usage_after in pairs if usage_before != usage_after]
    changed_usages.sort(key=lambda pair: (pair[1].pods != 0, pair[0].name))
    return tuple(
        (
            usage_before.name,
            _used(usage_before, resource),
            _used(usage_after, resource),
            f"{usage_before.pods} → {usage_after.pods}",
        )
        for usage_before, usage_after in changed_usages
    )


def _used(node: NodeUsage, resource: str) -> str:
    return percent(requested_share([node], resource)) if node.pods else "empty"


def _fragmentation_table(plan: Plan, states: Mapping[str, Fragmentation]) -> Table:
    rows = [(label, *texts) for label, texts in compare_states(plan, tuple(states.values()))]
    blank_cells = ("",) * (len(states) - 2)
    rows += [(label, *texts, *blank_cells) for label, texts in goal_of(plan.objective).unused_rows(plan)]
    return Table(("measure", *states), tuple(rows))


def _room_table(room: Sequence[RoomMade]) -> Table:
    rows = []
    for room_made in room[:LISTED_NODES]:
        places = (
            f"{node} x {times}" if times > 1 else node for node, times in sorted(Counter(room_made.nodes).items())
        )
        wanted_times = "most" if room_made.wanted is None else str(room_made.wanted)
        fits_alone = (str(room_made.fits_before), str(room_made.fits_after))
        rows.append((room_made.name, wanted_times, str(room_made.fitted), *fits_alone, ", ".join(places)))
    return Table(("for", "wanted", "fit", "alone before", "alone after", "on"), tuple(rows))


def _refusals(plan: Plan) -> Iterator[RefusalSection]:
    for group in group_refusals(plan.refused):
        rows = [RefusalRow(name_refused(refused), refused.sentences) for refused in group.refused[:LISTED_PER_REASON]]
        title = count(len(group.refused), group.kind.value.lower())
        yield RefusalSection(title, group.reason.value, tuple(rows), len(group.refused) - len(rows))


def _priorities_table(plan: Plan) -> Table:
    return Table(("priority", "pods"), tuple((str(priority), str(pods)) for priority, pods in plan.cost.priorities))


def _describe_run(settings: CycleSettings) -> dict[str, Any]:
    execution = settings.execution
    return {
        "approval": settings.approval.value,
        "trigger": settings.trigger,
        "maxFailedShare": execution.max_failed_share,
        "maxOpenMoves": execution.max_open_moves,
        "reservationTTL": format_duration(execution.ttl),
        "timeouts": {
            timeout.removesuffix("_seconds"): f"{value:g}s" for timeout, value in asdict(execution.timeouts).items()
        },
    }


def _seconds_table(outcome: Outcome) -> Table | None:
    rows = tuple((phase, f"{seconds:.2f} s") for phase, seconds in outcome.phases.items())
    return Table(("step", "time"), (*rows, ("in all", f"{outcome.seconds:.2f} s"))) if rows else None
