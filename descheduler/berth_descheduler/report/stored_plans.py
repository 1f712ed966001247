"""MigrationPlans in the cluster, as documents and as tables."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import (
    MigrationPlan,
    MigrationPlanSpec,
    MoveMethod,
    MoveState,
    PlannedMove,
    PlanPhase,
    Reservation,
    RunMode,
    parse_timestamp,
    read_timestamp,
    span_in_words,
)
from berth_descheduler.outcome import freed_later
from berth_descheduler.report.documents import ALL_IN_JSON
from berth_descheduler.report.prices import NO_PRICES, Prices
from berth_descheduler.report.stakes import stakes_in_words

_LISTED_MOVES: Final = 200
_MAKES_PODS_THAT_SURGE: Final = "ReplicaSet"
_LANDED: Final = "pods landed on their target"
_EVICTED: Final = "pods evicted without a place"
_FREED: Final = "nodes freed"
_WIDE_COLUMNS: Final = ("trigger", "strategy", "to free", "freed", "took")
WISHED: Final = frozenset({_LANDED, _EVICTED, _FREED})
"""Labels for which more is better; for all others less is."""

_PHASE_STYLES: Final = {
    PlanPhase.RUNNING: "cyan",
    PlanPhase.SUCCEEDED: "green",
    PlanPhase.PARTIAL: "yellow",
    PlanPhase.FAILED: "red",
    PlanPhase.ABORTED: "magenta",
}
_STATE_STYLES: Final = {
    MoveState.LANDED: "green",
    MoveState.REMOVED: "green",
    MoveState.ELSEWHERE: "yellow",
    MoveState.FAILED: "red",
    MoveState.SKIPPED: "magenta",
}


def newest_first(plans: Iterable[MigrationPlan]) -> tuple[MigrationPlan, ...]:
    """Return plans, the newest first, and by name within a second."""
    return tuple(sorted(plans, key=lambda plan: (plan.metadata.creation_timestamp or "", plan.metadata.name))[::-1])


NO_PLANS: Final = "There are no plans. `berth run` or a DeschedulerPolicy makes them."


def render_plan_list(plans: Sequence[MigrationPlan], now: datetime, *, wide: bool = False) -> RenderableType:
    """Return a table of plans, the newest first; a wide one also says their trigger, strategy, nodes and time."""
    if not plans:
        return Text(NO_PLANS)
    table = Table("plan", "policy", "mode", "phase", box=None, padding=(0, 2, 0, 0))
    table.add_column("moves", justify="right", no_wrap=True)
    table.add_column("landed", justify="right", no_wrap=True)
    table.add_column("evicted", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    for heading in _WIDE_COLUMNS if wide else ():
        table.add_column(heading, no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for plan in newest_first(plans):
        landed_pods = sum(status.state is MoveState.LANDED for status in plan.status.moves)
        mode = plan.spec.mode.value if plan.spec.mode else plan.spec.trigger
        evicted_pods = sum(status.state is MoveState.REMOVED for status in plan.status.moves)
        moves = sum(not move.is_eviction for move in plan.spec.moves)
        numbers = ("" if plan.phase is PlanPhase.REQUESTED else str(moves), str(landed_pods), str(evicted_pods or ""))
        row = (plan.metadata.name, plan.spec.policy, mode, phase_in_words(plan), *numbers)
        wide_cells = _wide_cells(plan) if wide else ()
        table.add_row(*row, _age(plan.metadata.creation_timestamp, now), *wide_cells, plan.status.message)
    return table


def _wide_cells(plan: MigrationPlan) -> tuple[str, ...]:
    """Return the cells of `_WIDE_COLUMNS`, "" for what is not known yet."""
    predicted, achieved = plan.spec.predicted, plan.status.achieved
    to_free = str(len(predicted.freed_nodes)) if predicted is not None else ""
    freed_nodes = str(achieved.freed_node_count) if achieved is not None else ""
    duration_text = span_in_words(timedelta(seconds=achieved.seconds)) if achieved is not None else ""
    return plan.spec.trigger, plan.spec.objective.strategy, to_free, freed_nodes, duration_text


def render_stored_plan(plan: MigrationPlan, now: datetime, prices: Prices = NO_PRICES) -> RenderableType:
    """Return phase, prediction, achievement and the result of each move."""
    parts: list[RenderableType] = [_header(plan, now)]
    if advice := what_to_do(plan):
        parts.append(Text(advice))
    if plan.spec.predicted is not None:
        parts[1:1] = [
            Text(sentence) for sentence in (*stakes_in_words(plan.spec.predicted, prices), *held_back_by(plan))
        ]
        parts += [Text(), _promises_table(plan)]
    if plan.spec.rooms:
        parts += [Text(), _rooms_table(plan)]
    if plan.spec.moves:
        parts += [Text(), _moves_table(plan)]
    return Group(*parts)


def held_back_by(plan: MigrationPlan) -> Iterator[str]:
    """Yield what holds a plan back, unless its outcome says so already, and the notes of the policy's rules."""
    if (predicted := plan.spec.predicted) is None:
        return
    restriction_messages = (restriction.message for restriction in predicted.restrictions)
    yield from (message for message in restriction_messages if message not in plan.status.message)
    yield from predicted.notes or ()


def render_waiting_rooms(reservations: Iterable[Reservation], now: datetime) -> RenderableType | None:
    """Return a table of the live Reservations for starving jobs; None if there is none."""
    rows = sorted(
        (reservation for reservation in reservations if reservation.is_live),
        key=lambda reservation: reservation.metadata.creation_timestamp or "",
    )
    if not rows:
        return None
    table = Table(title="Jobs that nodes are kept for", title_justify="left", title_style="bold")
    for heading in ("job", "nodes", "held", "expected in", "gives up in", "state"):
        table.add_column(heading, overflow="fold")
    for waiting_room in rows:
        state, slots = waiting_room.status.state, waiting_room.status.slots
        nodes = sorted(
            {slot.node for slot in slots if slot.node}
            or {node for task in waiting_room.spec.tasks for node in task.node_names}
        )
        held_slots = f"{sum(slot.state.is_occupied for slot in slots)} of {waiting_room.spec.replicas}"
        state_text = f"{state.phase}, {state.reason}" if state is not None else "not seen by the operator yet"
        table.add_row(
            _job_of(waiting_room),
            ", ".join(nodes),
            held_slots,
            _expected(waiting_room, now),
            _until(waiting_room.status.expires_at, now),
            state_text,
        )
    return table


def _job_of(reservation: Reservation) -> str:
    """Return the job that a Reservation is for, or the Reservation's name for a group without an object."""
    meta = reservation.metadata
    names = [f"{owner.kind} {meta.namespace}/{owner.name}" for owner in meta.owner_references]
    return names[0] if names else reservation.key


def _expected(reservation: Reservation, now: datetime) -> str:
    """Return in how long the last awaited slot is expected to be free, "" if the pods there do not say."""
    expected_times = [slot.expected_at for slot in reservation.status.slots if not slot.state.is_occupied]
    return _until(max(filter(None, expected_times)), now) if expected_times and all(expected_times) else ""


def _until(time: str | None, now: datetime) -> str:
    moment = read_timestamp(time)
    return span_in_words(max(moment - now, timedelta(0))) if moment is not None else ""


def phase_in_words(plan: MigrationPlan) -> Text:
    """Return the phase in its colour, with an abort under way."""
    asked_to_stop = plan.is_aborted and not plan.phase.terminal
    phase_text = f"{plan.phase.value}, aborting" if asked_to_stop else plan.phase.value
    return Text(phase_text, style=_PHASE_STYLES.get(plan.phase, ""))


def count_states(states: Iterable[MoveState]) -> str:
    """Return how many moves are in each state, in the order of a move, as in `2 landed, 1 failed`."""
    counts = Counter(states)
    return ", ".join(f"{counts[state]} {state.value.lower()}" for state in MoveState if counts[state])


def terms_in_words(spec: MigrationPlanSpec) -> str:
    """Return a plan's mode, and who requested, approved and aborted it."""
    mode = f" in the mode {spec.mode.value}" if spec.mode else ""
    people_by_action = (("asked for", spec.requested_by), ("approved", spec.approved_by), ("aborted", spec.aborted_by))
    return mode + "".join(f", {action} by {person}" for action, person in people_by_action if person)


def methods_in_words(plan: MigrationPlan) -> str:
    """Return how many pods surge and how many are evicted first, as far as that is known; "" if none surges."""
    if all(move.method is MoveMethod.EVICT for move in plan.spec.moves):
        return ""
    pairs = zip(plan.spec.moves, plan.move_statuses, strict=True)
    surges = sum(
        move_status.method is MoveMethod.SURGE
        if move_status.method
        else move.method is MoveMethod.SURGE and move.owner is not None and move.owner.kind == _MAKES_PODS_THAT_SURGE
        for move, move_status in pairs
    )
    return f"{surges} by surge, {len(plan.spec.moves) - surges} by eviction"


def what_to_do(plan: MigrationPlan) -> str:
    """Return what a proposed plan waits for, "" for any other."""
    name = plan.metadata.name
    if plan.phase is not PlanPhase.PROPOSED or plan.spec.approved or plan.is_aborted:
        return ""
    if plan.spec.mode is RunMode.PLAN:
        return "It is only shown: run its policy in mode Approve or Auto to carry it out."
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
        ("moves by", methods_in_words(plan)),
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
    """Yield labels with what was predicted and what is achieved so far."""
    predicted, achieved = plan.spec.predicted, plan.status.achieved
    if predicted is None:
        return
    states = Counter(status.state for status in plan.move_statuses)
    if predicted.moves or not predicted.evictions:
        yield _LANDED, str(predicted.moves), str(states[MoveState.LANDED])
    if predicted.evictions:
        yield _EVICTED, str(predicted.evictions), str(states[MoveState.REMOVED])
    if predicted.freed_nodes or (achieved and achieved.freed_nodes):
        freed_text = "" if achieved is None else f"{len(achieved.freed_nodes)}{freed_later(achieved)}"
        yield _FREED, f"{len(predicted.freed_nodes)} of {predicted.nodes}", freed_text
    for state, label in (
        (MoveState.ELSEWHERE, "ran elsewhere"),
        (MoveState.SKIPPED, "skipped"),
        (MoveState.FAILED, "failed"),
    ):
        if states[state]:
            yield label, "0", str(states[state])
    if achieved is not None:
        yield "pods without a node", "0", str(achieved.pending_pods)


def _rooms_table(plan: MigrationPlan) -> Table:
    table = Table(title="Room", title_justify="left", title_style="bold")
    for heading in ("for", "on", "state", "reason", "message"):
        table.add_column(heading, overflow="fold")
    for room, room_status in zip(plan.spec.rooms, plan.room_statuses, strict=True):
        table.add_row(
            room.name, ", ".join(room.nodes), room_status.state.value, room_status.reason, room_status.message
        )
    return table


def _moves_table(plan: MigrationPlan) -> Table:
    moves = plan.spec.moves
    table = Table(title=PlannedMove.count_all(moves), title_justify="left", title_style="bold")
    table.add_column("wave", justify="right", no_wrap=True)
    methods = ["method"] if any(move_status.method for move_status in plan.move_statuses) else []
    for heading in ("pod", "from", "to", *methods, "state", "reason", "message"):
        table.add_column(heading, overflow="fold")
    pairs = sorted(zip(moves, plan.move_statuses, strict=True), key=lambda pair: pair[0].wave)
    for move, status in pairs[:_LISTED_MOVES]:
        state = Text(status.state.value, style=_STATE_STYLES.get(status.state, ""))
        elsewhere = f" (on {status.node})" if status.state is MoveState.ELSEWHERE and status.node else ""
        pod_name = f"{move.namespace}/{move.pod}"
        message = "; ".join(filter(None, (status.method_reason, status.message or move.reason)))
        place_and_method = (move.destination + elsewhere, *(status.method or "" for _ in methods))
        table.add_row(str(move.wave), pod_name, move.source, *place_and_method, state, status.reason, message)
    if len(moves) > _LISTED_MOVES:
        table.caption = f"and {len(moves) - _LISTED_MOVES} more; {ALL_IN_JSON}"
    return table


def _age(created: str | None, now: datetime) -> str:
    return span_in_words(now - parse_timestamp(created)) if created else ""


def _took(start: str | None, end: str | None) -> str:
    return span_in_words(parse_timestamp(end) - parse_timestamp(start)) if start and end else ""
