"""Owns what is told of MigrationPlans that are in the cluster: in builtins for machines and in tables for people.

It does not own plans that were just made (`report`, `plan_tables`) nor what may be asked of one (`plan_requests`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core.clock import parse_timestamp
from berth_core.migration_plans import (
    MigrationPlan,
    MigrationPlanSpec,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
    Room,
    RoomStatus,
)
from berth_descheduler.text import ALL_IN_JSON, count, span_in_words

_LISTED_MOVES: Final = 200
_LANDED: Final = "pods landed on their target"
_FREED: Final = "nodes freed"
WISHED: Final = frozenset({_LANDED, _FREED})
"""Labels of promises of which more is better; of the others less is."""

_PHASE_STYLES: Final = {
    PlanPhase.RUNNING: "cyan",
    PlanPhase.SUCCEEDED: "green",
    PlanPhase.PARTIAL: "yellow",
    PlanPhase.FAILED: "red",
    PlanPhase.ABORTED: "magenta",
}
_STATE_STYLES: Final = {
    MoveState.LANDED: "green",
    MoveState.ELSEWHERE: "yellow",
    MoveState.FAILED: "red",
    MoveState.SKIPPED: "magenta",
}


def newest_first(plans: Iterable[MigrationPlan]) -> tuple[MigrationPlan, ...]:
    """Return plans by age; those of one second by name."""
    return tuple(sorted(plans, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))[::-1])


# --- for machines -----------------------------------------------------------------------------------------------------


def describe_in_short(plan: MigrationPlan) -> dict[str, Any]:
    """Return what a list says of a plan, in builtins."""
    spec, states = plan.spec, Counter(status.state for status in plan.move_statuses)
    return {
        "name": plan.metadata.name,
        "created": plan.metadata.creation_timestamp,
        "policy": spec.policy or None,
        "trigger": spec.trigger,
        "mode": spec.mode.value if spec.mode else None,
        "requested_by": spec.requested_by or None,
        "phase": plan.phase.value,
        "approved": spec.approved,
        "approved_by": spec.approved_by or None,
        "approve_before": spec.approve_before,
        "aborted": spec.aborted,
        "aborted_by": spec.aborted_by or None,
        "moves": len(spec.moves),
        "states": {state.value: states[state] for state in MoveState if states[state]},
        "message": plan.status.message,
        "started": plan.status.start_time,
        "completed": plan.status.completion_time,
    }


def describe_stored_plan(plan: MigrationPlan) -> dict[str, Any]:
    """Return a plan in builtins: what was asked for, predicted and achieved, and each move with how it went."""
    spec, status = plan.spec, plan.status
    pairs = zip(spec.moves, plan.move_statuses, strict=True)
    return {
        **describe_in_short(plan),
        "objective": msgspec.to_builtins(spec.objective),
        "predicted": msgspec.to_builtins(spec.predicted),
        "achieved": msgspec.to_builtins(status.achieved),
        "conditions": [msgspec.to_builtins(condition) for condition in status.conditions],
        "move_list": [_describe_move(move, how) for move, how in pairs],
        "rooms": [_describe_room(*pair) for pair in zip(spec.rooms, plan.room_statuses, strict=True)],
    }


def _describe_move(move: PlannedMove, how: MoveStatus) -> dict[str, Any]:
    planned = {"namespace": move.namespace, "pod": move.pod, "source": move.source, "target": move.target}
    told = {name: getattr(how, name) for name in ("reason", "message", "node", "replacement", "reservation")}
    asked = {"wave": move.wave, "requests": move.requests, "why": move.reason}
    return {**planned, **asked, "state": how.state.value, **told}


def _describe_room(room: Room, how: RoomStatus) -> dict[str, Any]:
    told = {name: getattr(how, name) for name in ("reason", "message", "reservation")}
    taken = [{"pod": slot.pod, "node": slot.node} for slot in how.taken]
    return {"for": room.name, "nodes": list(room.nodes), "state": how.state.value, **told, "taken": taken}


# --- for people -------------------------------------------------------------------------------------------------------


def render_plan_list(plans: Sequence[MigrationPlan], now: datetime) -> RenderableType:
    """Return a table of plans, the newest first."""
    if not plans:
        return Text("There are no plans. `berth run` or a DeschedulerPolicy makes them.")
    table = Table("plan", "policy", "mode", "phase", box=None, padding=(0, 2, 0, 0))
    table.add_column("moves", justify="right", no_wrap=True)
    table.add_column("landed", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for plan in newest_first(plans):
        landed = sum(status.state is MoveState.LANDED for status in plan.status.moves)
        mode = plan.spec.mode.value if plan.spec.mode else plan.spec.trigger
        moves = "" if plan.phase is PlanPhase.REQUESTED else str(len(plan.spec.moves))
        row = (plan.metadata.name, plan.spec.policy, mode, phase_in_words(plan), moves, str(landed))
        table.add_row(*row, _age(plan.metadata.creation_timestamp, now), plan.status.message)
    return table


def render_stored_plan(plan: MigrationPlan, now: datetime) -> RenderableType:
    """Return a plan: where it stands, what was predicted and what was achieved, and each move with how it went."""
    parts: list[RenderableType] = [_header(plan, now)]
    if advice := what_to_do(plan):
        parts.append(Text(advice))
    if plan.spec.predicted is not None:
        parts += [Text(), _promises_table(plan)]
    if plan.spec.rooms:
        parts += [Text(), _rooms_table(plan)]
    if plan.spec.moves:
        parts += [Text(), _moves_table(plan)]
    return Group(*parts)


def phase_in_words(plan: MigrationPlan) -> Text:
    """Return where a plan stands, in the colour of its phase."""
    asked_to_stop = plan.spec.aborted and not plan.phase.terminal
    said = f"{plan.phase.value}, aborting" if asked_to_stop else plan.phase.value
    return Text(said, style=_PHASE_STYLES.get(plan.phase, ""))


def terms_in_words(spec: MigrationPlanSpec) -> str:
    """Return in which mode a plan was made and who had a say in it, to be put behind who made it."""
    mode = f" in the mode {spec.mode.value}" if spec.mode else ""
    people = (("asked for", spec.requested_by), ("approved", spec.approved_by), ("aborted", spec.aborted_by))
    return mode + "".join(f", {what} by {who}" for what, who in people if who)


def what_to_do(plan: MigrationPlan) -> str:
    """Return what somebody may do about a plan, "" if nothing is waited for."""
    name = plan.metadata.name
    if plan.phase is not PlanPhase.PROPOSED or plan.spec.approved or plan.spec.aborted:
        return ""
    if plan.spec.mode is not None and plan.spec.approve_before is None:
        return "It is only shown: run its policy in the mode Approve or Auto to have it carried out."
    until = f" (until {plan.spec.approve_before})" if plan.spec.approve_before else ""
    return f"It waits for approval{until}: berth approve {name}"


def _header(plan: MigrationPlan, now: datetime) -> Table:
    spec, status = plan.spec, plan.status
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    of_policy = f"policy {spec.policy}" if spec.policy else "no policy"
    rows: list[tuple[str, str | Text]] = [
        ("plan", Text(plan.metadata.name, style="bold")),
        ("phase", phase_in_words(plan)),
        ("outcome", status.message),
        ("made by", f"{spec.trigger} run of {of_policy}{terms_in_words(spec)}"),
        ("wanted", f"{spec.objective.plugin}, {spec.objective.strategy}"),
        ("age", _age(plan.metadata.creation_timestamp, now)),
        ("took", _took(status.start_time, status.completion_time)),
    ]
    for label, text in rows:
        if text:
            table.add_row(label, text)
    return table


def _promises_table(plan: MigrationPlan) -> Table:
    table = Table("", box=None, padding=(0, 2, 0, 0))
    table.add_column("predicted", justify="right")
    table.add_column("achieved", justify="right")
    for label, planned, achieved in promises(plan):
        table.add_row(label, planned, achieved)
    return table


def promises(plan: MigrationPlan) -> Iterator[tuple[str, str, str]]:
    """Yield what was predicted beside what was achieved so far."""
    planned, done = plan.spec.predicted, plan.status.achieved
    if planned is None:
        return
    states = Counter(status.state for status in plan.move_statuses)
    yield _LANDED, str(planned.moves), str(states[MoveState.LANDED])
    if planned.freed_nodes or (done and done.freed_nodes):
        freed = "" if done is None else str(len(done.freed_nodes))
        yield _FREED, f"{len(planned.freed_nodes)} of {planned.nodes}", freed
    for state, label in (
        (MoveState.ELSEWHERE, "ran elsewhere"),
        (MoveState.SKIPPED, "skipped"),
        (MoveState.FAILED, "failed"),
    ):
        if states[state]:
            yield label, "0", str(states[state])
    if done is not None:
        yield "pods without a node", "0", str(done.pending_pods)


def _rooms_table(plan: MigrationPlan) -> Table:
    table = Table(title="Room", title_justify="left", title_style="bold")
    for heading in ("for", "on", "state", "reason", "message"):
        table.add_column(heading, overflow="fold")
    for room, how in zip(plan.spec.rooms, plan.room_statuses, strict=True):
        table.add_row(room.name, ", ".join(room.nodes), how.state.value, how.reason, how.message)
    return table


def _moves_table(plan: MigrationPlan) -> Table:
    moves = plan.spec.moves
    table = Table(title=count(len(moves), "move"), title_justify="left", title_style="bold")
    table.add_column("wave", justify="right", no_wrap=True)
    for heading in ("pod", "from", "to", "state", "reason", "message"):
        table.add_column(heading, overflow="fold")
    pairs = sorted(zip(moves, plan.move_statuses, strict=True), key=lambda pair: pair[0].wave)
    for move, how in pairs[:_LISTED_MOVES]:
        state = Text(how.state.value, style=_STATE_STYLES.get(how.state, ""))
        elsewhere = f" (on {how.node})" if how.state is MoveState.ELSEWHERE and how.node else ""
        name = f"{move.namespace}/{move.pod}"
        said = how.message or move.reason
        table.add_row(str(move.wave), name, move.source, move.target + elsewhere, state, how.reason, said)
    if len(moves) > _LISTED_MOVES:
        table.caption = f"and {len(moves) - _LISTED_MOVES} more; {ALL_IN_JSON}"
    return table


def _age(created: str | None, now: datetime) -> str:
    return span_in_words(now - parse_timestamp(created)) if created else ""


def _took(start: str | None, end: str | None) -> str:
    return span_in_words(parse_timestamp(end) - parse_timestamp(start)) if start and end else ""
