"""The demo's steps, from an empty machine to a consolidated cluster."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from berth_core import MigrationPlan, MoveState, Pod
from berth_descheduler.goals import DEFAULT_GOAL_OF_COMMANDS
from berth_descheduler.planner import (
    Fragmentation,
    Plan,
    PlanLimits,
    PlannerSettings,
    WaveLimits,
    measure_cluster,
    plan,
)
from berth_descheduler.planner.sentences import in_waves
from berth_descheduler.plugins import DefragmentationArgs, default_plugins, settings_with
from berth_descheduler.report import judge_plan
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import MIGRATION_PLANS, PODS, KubeClient, connect
from berth_sandbox.ports import LOOPBACK, free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from berth_sandbox.workload import NAMESPACE_NAMES, fill_cluster

_GOAL: Final = DEFAULT_GOAL_OF_COMMANDS
_WAVES: Final = WaveLimits(per_controller=4, per_wave=40)
"""More moves at once than by default: these pods serve no user, and a wave takes as long as its slowest move."""

_PLUGINS: Final = default_plugins(DefragmentationArgs.parse({"strategy": _GOAL.name}))
PLANNER_SETTINGS: Final = settings_with(PlannerSettings(plugins=_PLUGINS, limits=PlanLimits(waves=_WAVES)), _PLUGINS)
"""What the demo plans with."""

PLANNER_OPTIONS: Final = (
    f"--strategy={_GOAL.option}",
    f"--per-controller={_WAVES.per_controller}",
    f"--per-wave={_WAVES.per_wave}",
)
"""The same as options of the descheduler."""

_LONGEST_RUN_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.3
_SETTLE_SECONDS: Final = 30.0


class Narrator(Protocol):
    """Shows people how the demo goes."""

    def say(self, line: str) -> None:
        """Report that a step has begun or ended."""
        ...

    def show_nodes(self, title: str, fragmentation: Fragmentation) -> None:
        """Show a picture of the nodes."""
        ...

    def show_moves(self, running_plan: MigrationPlan) -> None:
        """Show how far a plan's moves have come."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demo achieved.

    `seconds` counts from the first look at the cluster to the end of the run.
    """

    nodes: int
    freed_nodes: int
    upper_bound: int
    """The most nodes that any plan could have freed."""

    proven_optimal: bool
    """Whether as many were planned."""

    moves: int
    landed_on_target: int
    elsewhere: int
    pending: int
    lost: int
    pods: int
    seconds: float
    plan: str
    outcome: str

    @property
    def succeeded(self) -> bool:
        """Return whether no pod is pending or lost."""
        return self.pending == 0 and self.lost == 0


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What the demo achieved, and what it is made out of."""

    result: DemoResult
    planned: Plan
    carried_out: MigrationPlan | None
    """The plan after the run; None where there was nothing to move."""

    after: Fragmentation


def run_demo(sandbox: Sandbox, *, seed: int, narrator: Narrator) -> DemoRun:
    """Fill a sandbox, run both services and return what came of it."""
    with connect(kubeconfig=str(sandbox.kubeconfig), user_agent="berth-demo") as client:
        filled = fill_cluster(client, seed=seed, progress=narrator.say)
        started = time.monotonic()
        proposed_plan = plan(read_live_snapshot(client), PLANNER_SETTINGS)
        fragmentation_before = proposed_plan.before
        narrator.show_nodes(
            f"before: {len(fragmentation_before.empty_nodes)} of {len(fragmentation_before.nodes)} nodes are empty",
            fragmentation_before,
        )
        _show_plan(proposed_plan, narrator)
        carried_out_plan = run_services(sandbox, client, narrator)
        seconds = time.monotonic() - started
        running_pods, pending_pods = _wait_for_pods(client, filled.pods)
        after = measure_cluster(read_live_snapshot(client), PLANNER_SETTINGS)
        narrator.show_nodes(f"after: {len(after.empty_nodes)} of {len(after.nodes)} nodes are empty", after)
    result = _result(
        proposed_plan,
        after,
        carried_out_plan,
        wanted=filled.pods,
        running=running_pods,
        pending=pending_pods,
        seconds=seconds,
    )
    return DemoRun(result, proposed_plan, carried_out_plan, after)


def _show_plan(planned: Plan, narrator: Narrator) -> None:
    freed_count, moves = len(planned.freed_nodes), len(planned.moves)
    narrator.say(f"{_GOAL.name} finds {moves} moves{in_waves(planned)} that free {freed_count} nodes")
    if planned.quality is not None:
        narrator.say(judge_plan(planned))


def run_services(sandbox: Sandbox, client: KubeClient, narrator: Narrator) -> MigrationPlan | None:
    """Run the operator, and the descheduler for one cycle; return its plan, None without moves."""
    with running_services(sandbox, narrator, descheduler_options=("--once", *PLANNER_OPTIONS)) as services:
        operator, descheduler = services
        deadline = time.monotonic() + _LONGEST_RUN_SECONDS
        while descheduler.exit_code is None:
            operator.require_running()
            latest_plan = _latest_plan(client)
            if latest_plan is not None:
                narrator.show_moves(latest_plan)
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        latest_plan = _latest_plan(client)
        if latest_plan is None and descheduler.exit_code:
            descheduler.require_running()
        if latest_plan is not None:
            narrator.show_moves(latest_plan)
        return latest_plan


@contextmanager
def running_services(
    sandbox: Sandbox,
    narrator: Narrator,
    *,
    operator_options: Sequence[str] = (),
    descheduler_options: Sequence[str] = (),
) -> Iterator[tuple[ServiceProcess, ServiceProcess]]:
    """Run the operator and the descheduler under their own accounts; the operator leads when this yields."""
    port = free_port()
    operator_log, descheduler_log = log_files(sandbox.folder)
    operator_command = [
        *_program("berth_operator"),
        f"--kubeconfig={sandbox.service_account_kubeconfig('berth-operator')}",
        "--webhook-port=0",
        f"--health-address={LOOPBACK}:{port}",
        *operator_options,
    ]
    descheduler_command = [
        *_program("berth_descheduler"),
        f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
        f"--health-address={LOOPBACK}:0",
        *descheduler_options,
    ]
    with ServiceProcess(operator_command, operator_log) as operator:
        operator.wait_until_leading(port)  # a run that finds no operator does not begin
        with ServiceProcess(descheduler_command, descheduler_log) as descheduler:
            narrator.say("both services are running under their own service accounts")
            yield operator, descheduler


def _program(module: str) -> list[str]:
    """Return how this Python starts a service, wherever its scripts are."""
    return [sys.executable, "-m", module]


def _latest_plan(client: KubeClient) -> MigrationPlan | None:
    plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    return max(plans, key=lambda migration_plan: migration_plan.metadata.creation_timestamp or "", default=None)


def _wait_for_pods(client: KubeClient, wanted: int) -> tuple[int, int]:
    """Return how many of the workload's pods run and how many are pending, once the cluster has settled."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        pods = [pod for pod in client.list(PODS, type=Pod).items if pod.metadata.namespace in NAMESPACE_NAMES]
        living_pods = [pod for pod in pods if not pod.is_terminating]
        running_pods = sum(pod.is_ready for pod in living_pods)
        pending_pods = len(living_pods) - running_pods
        if (running_pods, pending_pods) == (wanted, 0) or time.monotonic() > deadline:
            return running_pods, pending_pods
        time.sleep(_POLL_SECONDS)


def _result(
    planned: Plan,
    after: Fragmentation,
    carried_out: MigrationPlan | None,
    *,
    wanted: int,
    running: int,
    pending: int,
    seconds: float,
) -> DemoResult:
    states = [move.state for move in carried_out.status.moves] if carried_out else []
    quality = planned.quality
    return DemoResult(
        nodes=len(after.nodes),
        freed_nodes=len(set(after.empty_nodes) - set(planned.before.empty_nodes)),
        upper_bound=quality.upper_bound if quality else len(after.nodes),
        proven_optimal=quality is not None and quality.proven_optimal,
        moves=len(carried_out.spec.moves) if carried_out else 0,
        landed_on_target=sum(state is MoveState.LANDED for state in states),
        elsewhere=sum(state is MoveState.ELSEWHERE for state in states),
        pending=pending,
        lost=max(0, wanted - running - pending),
        pods=wanted,
        seconds=round(seconds, 1),
        plan=carried_out.metadata.name if carried_out else "",
        outcome=carried_out.status.message if carried_out else "nothing to move",
    )


def log_files(folder: Path) -> tuple[Path, ...]:
    """Return where the two services' logs are."""
    return folder / "berth-operator.log", folder / "berth-descheduler.log"
