"""Rehearses a plan on the twin of a snapshot, and says what differed.

The plan is carried out there as a run would, by the real scheduler and controllers. The cluster that the snapshot came
from is not touched: the only clients here are those of the sandbox.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from berth_core import (
    DEFAULT_NAMESPACE,
    MigrationPlan,
    MoveMethod,
    MoveState,
    MoveStatus,
    PlannedMove,
    Snapshot,
    SystemClock,
    count,
    first_few,
)
from berth_descheduler.capabilities.rehearsal.cli.twin import build_twin
from berth_descheduler.capabilities.rehearsal.cli.twin_sandbox import fill_sandbox, in_twin
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.plans.publishing import publish_plan
from berth_descheduler.outcome import Outcome
from berth_descheduler.planner import Plan
from berth_descheduler.report import ALL_IN_JSON, RunProgress
from berth_descheduler.settings import CycleSettings, ExecutionSettings, MoveTimeouts
from berth_kube import connect
from berth_sandbox.ports import LOOPBACK, free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from berth_sandbox.settings import SandboxSettings
from berth_service.logs import configure_logs
from berth_service.signals import interrupt_on_signals, stop_on_signals

_OPERATOR: Final = "berth-operator"
_DESCHEDULER: Final = "berth-descheduler"
_PATIENCE_SECONDS: Final = 30.0
"""How long a step of a move may take in a rehearsal: pods start at once there."""

_SHOWN: Final = 20


class RehearsedDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A move that did not go as predicted."""

    index: int
    """Its place in the plan, from 0."""
    namespace: str
    pod: str
    source: str
    target: str
    node: str
    """Where its replacement runs, "" if it does not."""
    state: MoveState
    reason: str
    message: str


class RehearsalDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `berth plan --rehearse` adds to the plan's document."""

    as_predicted: bool
    moves: int
    moves_as_predicted: int
    freed_nodes: tuple[str, ...]
    nodes_not_freed: tuple[str, ...]
    seconds: float
    note: str
    differences: tuple[RehearsedDifference, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RehearsedMove:
    """A move and what became of it."""

    move: PlannedMove
    status: MoveStatus

    @property
    def as_predicted(self) -> bool:
        """Return whether the pod landed where it was planned, or left if that was the plan."""
        return self.status.state is (MoveState.REMOVED if self.move.is_eviction else MoveState.LANDED)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a rehearsal found; `seconds` are those of the moves."""

    moves: tuple[RehearsedMove, ...]
    planned_nodes: tuple[str, ...]
    """Nodes that the plan would free."""
    freed_nodes: tuple[str, ...]
    seconds: float = 0.0
    note: str = ""
    """Why the plan was not carried out to its end, "" if it was."""
    left_out: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[RehearsedMove, ...]:
        return tuple(rehearsed for rehearsed in self.moves if not rehearsed.as_predicted)

    @property
    def nodes_not_freed(self) -> tuple[str, ...]:
        return tuple(node for node in self.planned_nodes if node not in self.freed_nodes)

    @property
    def as_predicted(self) -> bool:
        """Return whether every move and node went as planned, and nothing stopped the plan."""
        return not (self.differences or self.nodes_not_freed or self.note)

    @property
    def sentence(self) -> str:
        landed_moves, nodes = len(self.moves) - len(self.differences), self.planned_nodes
        parts = [f"{landed_moves} of {count(len(self.moves), 'move')} as predicted"]
        if nodes:
            parts.append(f"{len(nodes) - len(self.nodes_not_freed)} of {count(len(nodes), 'node')} freed")
        note = f". Stopped: {self.note}" if self.note else ""
        return f"rehearsed: {'; '.join(parts)}; {self.seconds:.0f} s{note}"

    def describe(self) -> RehearsalDocument:
        differing = [(index, rehearsed) for index, rehearsed in enumerate(self.moves) if not rehearsed.as_predicted]
        return RehearsalDocument(
            as_predicted=self.as_predicted,
            moves=len(self.moves),
            moves_as_predicted=len(self.moves) - len(differing),
            freed_nodes=self.freed_nodes,
            nodes_not_freed=self.nodes_not_freed,
            seconds=round(self.seconds, 3),
            note=self.note,
            differences=tuple(_describe_difference(index, rehearsed) for index, rehearsed in differing),
            left_out=self.left_out,
        )

    def print_on(self, console: Console) -> None:
        """Show what a rehearsal found to people."""
        console.print(self.sentence, highlight=False, markup=False, soft_wrap=True)
        if differing := self.differences:
            table = Table("pod", "from", "planned to", "in the rehearsal", "why", box=None)
            for rehearsed in differing[:_SHOWN]:
                move, status = rehearsed.move, rehearsed.status
                state_text = f"on {status.node}" if status.state is MoveState.ELSEWHERE else status.state.value.lower()
                why = ": ".join(part for part in (status.reason, status.message) if part)
                cells = (f"{move.namespace}/{move.pod}", move.source, move.destination, state_text, why)
                table.add_row(*map(Text, cells))
            console.print(table)
        if len(differing) > _SHOWN:
            console.print(f"... and {len(differing) - _SHOWN} more, {ALL_IN_JSON}", highlight=False)
        if not_freed := self.nodes_not_freed:
            console.print(f"not freed: {first_few(not_freed, _SHOWN)}", highlight=False, markup=False)
        for line in self.left_out:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _describe_difference(index: int, rehearsed: RehearsedMove) -> RehearsedDifference:
    move, status = rehearsed.move, rehearsed.status
    return RehearsedDifference(
        index=index,
        namespace=move.namespace,
        pod=move.pod,
        source=move.source,
        target=move.target,
        node=status.node,
        state=status.state,
        reason=status.reason,
        message=status.message,
    )


def compare(
    moves: Sequence[PlannedMove], proposed_plan: Plan, outcome: Outcome, left_out: Sequence[str] = ()
) -> Rehearsal:
    """Return how the moves of a plan went, compared with what it predicts."""
    plan_outcome = outcome.plan
    statuses = plan_outcome.statuses if plan_outcome is not None else ()
    missing = MoveStatus(namespace="", pod="", state=MoveState.SKIPPED, message=outcome.sentence)
    pairs = ((move, statuses[index] if index < len(statuses) else missing) for index, move in enumerate(moves))
    return Rehearsal(
        moves=tuple(RehearsedMove(move, status) for move, status in pairs),
        planned_nodes=tuple(proposed_plan.freed_nodes),
        freed_nodes=plan_outcome.freed_nodes if plan_outcome is not None else (),
        seconds=plan_outcome.seconds if plan_outcome is not None else 0.0,
        note=plan_outcome.note if plan_outcome is not None else outcome.sentence,
        left_out=tuple(left_out),
    )


@contextmanager
def _operator(sandbox: Sandbox) -> Iterator[None]:
    """Run the operator under its own account, and end when it leads."""
    port = free_port()
    options = (
        f"--kubeconfig={sandbox.service_account_kubeconfig(_OPERATOR)}",
        "--webhook-port=0",
        f"--health-address={LOOPBACK}:{port}",
    )
    command = (sys.executable, "-m", "berth_operator", *options)
    with ServiceProcess(command, sandbox.folder / f"{_OPERATOR}.log") as operator:
        operator.wait_until_leading(port)
        yield


def rehearse(
    proposed_plan: Plan,
    snapshot: Snapshot,
    deployments: Iterable[Mapping[str, Any]],
    method: MoveMethod,
    console: Console,
) -> Rehearsal:
    """Carry a plan out on a twin of the snapshot, and take the twin down.

    Raises `SandboxError` where no control plane can be started, and `KeyboardInterrupt` once that is down.
    """

    def say(line: str) -> None:
        console.print(f"• {line}", highlight=False, markup=False)

    twin = build_twin(snapshot, deployments)
    left_out = list(twin.left_out)
    if proposed_plan.rooms:
        left_out.append("rooms not kept for the pods that they are made for")
    configure_logs("error", as_json=False)
    with interrupt_on_signals(), Sandbox.start(SandboxSettings(), progress=say) as sandbox:
        owners, pods = fill_sandbox(sandbox, twin, say)
        moves = tuple(in_twin(move, snapshot, owners, pods) for move in proposed_plan.moves)
        return _carry_out(sandbox, replace(proposed_plan, moves=moves, room=(), waits=()), method, console, left_out)


def _carry_out(
    sandbox: Sandbox, proposed_plan: Plan, method: MoveMethod, console: Console, left_out: Sequence[str]
) -> Rehearsal:
    """Carry out a plan with the rights that the descheduler has."""
    execution = ExecutionSettings(timeouts=MoveTimeouts(shutdown_seconds=0.0)).hurried(_PATIENCE_SECONDS)
    settings = CycleSettings(execution=execution, moves=method)
    planner = proposed_plan.settings.in_namespace(DEFAULT_NAMESPACE)
    clock = SystemClock()
    with (
        _operator(sandbox),
        connect(
            kubeconfig=str(sandbox.service_account_kubeconfig(_DESCHEDULER)), user_agent="berth-rehearsal"
        ) as client,
        stop_on_signals() as stop,  # the threads of a run end in order, and then the sandbox
        RunProgress(console, asks_for_approval=False, stop=stop) as progress,
    ):
        published_plan: MigrationPlan = publish_plan(client, clock, settings, proposed_plan, None)
        outcome = Cycle(CycleContext(client, clock, progress, stop), settings, planner).resume(published_plan)
    if stop.is_set():
        raise KeyboardInterrupt
    return compare(proposed_plan.moves, proposed_plan, outcome, left_out)
