"""`berth demo`: its options, what it prints and its exit code."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from importlib.resources import as_file, files
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from berth_core import ClockDeadline, InputError, SystemClock, printable_line
from berth_descheduler.capabilities.demo.cli.narration import ConsoleNarrator
from berth_descheduler.capabilities.demo.cli.real_nodes import RealDemoResult, run_real_demo
from berth_descheduler.capabilities.demo.cli.scenario import PLANNER_SETTINGS, DemoResult, DemoRun, log_files, run_demo
from berth_descheduler.capabilities.demo.cli.scenes import SCENES, SceneResult, play_scene
from berth_descheduler.options import Output, cluster_options, output_option, write_described
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.planner import Plan, PlanLimits, plan
from berth_descheduler.report import (
    Occasion,
    ReportFile,
    ReportPage,
    Terminal,
    describe_plan,
    judge_plan,
    output_console,
    plan_page,
    print_plan,
    report_option,
    run_page,
)
from berth_descheduler.snapshots import read_live_snapshot, read_snapshot_file
from berth_kube import connect
from berth_sandbox.binaries import CONTROL_PLANE_CPU_MINUTES, is_control_plane_built
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.folders import cache_folder
from berth_sandbox.sandbox import EXAMPLE_NAMESPACE, Sandbox
from berth_sandbox.settings import SandboxSettings
from berth_service.command_line import OwnCommand
from berth_service.extras import Extra, require
from berth_service.signals import interrupt_on_signals

_KEPT_NAME = "demo"
_CONSOLIDATE = "consolidate"
_FIRST_PAGE: Final = "first-look.html"
"""In the folder of built programs, where `--report` names no other file."""
_FAILED = 1
_NO_CLUSTER = 2


@click.command("demo", cls=OwnCommand)
@click.option(
    "--scene",
    type=click.Choice([_CONSOLIDATE, *SCENES]),
    default=_CONSOLIDATE,
    show_default=True,
    help="What to show; the other scenes are short, each about one feature.",
)
@click.option("--nodes", type=click.IntRange(4, 1000), default=60, show_default=True, help="Nodes of 16 cpu and 64Gi.")
@click.option(
    "--real-nodes",
    type=click.IntRange(2, 20),
    help="Use this many nodes that run containers instead, with a client that sends requests all the time; needs root.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides sizes and replicas of the workload.")
@click.option("--keep", is_flag=True, help="Leave the cluster and both services up and say what to try.")
@cluster_options
@output_option
@report_option
@click.pass_context
def demo_command(
    click_context: click.Context,
    /,
    *,
    scene: str,
    nodes: int,
    real_nodes: int | None,
    seed: int,
    keep: bool,
    output: Output,
    **options: Any,  # noqa: ANN401
) -> int:
    """Fragment a real local cluster and consolidate it: plan, reserve, evict, hand over, verify. Or play a scene.

    While the control plane has yet to be built, it first shows a plan for a bundled snapshot, and writes its page.

    With --kubeconfig or --context it only plans, on that cluster, and changes nothing there.

    Progress goes to standard error. Exit code 1 if any pod is pending or lost at the end, if a scene could not show
    what it is about, or if on real nodes none was freed or a request failed; 2 if no cluster can be started for a scene
    or real nodes.
    """
    console = Terminal(stderr=True)
    report: ReportFile | None = options["report"]
    if options["kubeconfig"] is not None or options["context"] is not None:
        _refuse_options(
            click_context, ("scene", "nodes", "real-nodes", "seed", "keep"), "is only for the demo's own cluster"
        )
        return _plan_on(options["kubeconfig"], options["context"], output, report)
    require(Extra.DEMO, "`berth demo`")
    if scene != _CONSOLIDATE:
        refusal = f"is for the scene {_CONSOLIDATE}; {scene} has a cluster of its own"
        _refuse_options(click_context, ("nodes", "real-nodes", "seed", "report"), refusal)
        return _play(scene, keep=keep, output=output, console=console)
    if real_nodes is not None:
        _refuse_options(click_context, ("nodes", "seed", "report"), "is not for real nodes")
        return _run_on_real_nodes(real_nodes, keep=keep, output=output, console=console)
    settings = SandboxSettings(nodes=nodes, name=_KEPT_NAME if keep else None)
    if _must_build():
        with ConsoleNarrator(console) as narrator:
            _show_first_look(narrator, report)
    with _own_cluster(settings, console, keep=keep) as (narrator, sandbox):
        if sandbox is None:
            narrator.say("planning on the bundled snapshot instead; nothing is evicted")
            return _plan_bundled(output, report)
        demo_run = run_demo(sandbox, seed=seed, narrator=narrator)
    _print(demo_run.result, output, console)
    if report is not None:
        report.write(build_demo_page(demo_run))
    return 0 if demo_run.result.succeeded else _FAILED


@contextmanager
def _own_cluster(
    settings: SandboxSettings, console: Console, *, keep: bool
) -> Iterator[tuple[ConsoleNarrator, Sandbox | None]]:
    """Yield a narrator and a new cluster, None for a cluster where none can be started."""
    with interrupt_on_signals(), ExitStack() as stack:
        narrator = stack.enter_context(ConsoleNarrator(console))
        if _must_build():
            narrator.say(describe_build())
        try:
            sandbox = stack.enter_context(Sandbox.start(settings, progress=narrator.say))
        except SandboxUnavailableError as error:
            narrator.say(f"no real cluster can be started here: {error}")
            yield narrator, None
            return
        yield narrator, sandbox
        if keep:
            sandbox.start_services(narrator.say)
            sandbox.detach()
            _say_how_to_look(console, sandbox)


def _must_build() -> bool:
    """Return whether the control plane has yet to be built; starting it says what else keeps it from starting."""
    try:
        return not is_control_plane_built()
    except SandboxUnavailableError:
        return False


def describe_build() -> str:
    """Return what is built before the first cluster can start, and about how long that takes on this machine."""
    cores = os.cpu_count() or 1
    minutes = math.ceil(CONTROL_PLANE_CPU_MINUTES / cores)
    return (
        f"next the control plane is built from source (etcd, Kubernetes, kwok), only this once: about {minutes} "
        f"{'minute' if minutes == 1 else 'minutes'} on {cores} {'core' if cores == 1 else 'cores'}, and its downloads; "
        "then the demo goes on by itself; meanwhile `berth plan --report plan.html` looks at a cluster of your own"
    )


def _show_first_look(narrator: ConsoleNarrator, report: ReportFile | None) -> None:
    """Plan on the bundled snapshot, show the nodes before and after, and write the page of the plan."""
    narrator.say("a first look, on the bundled snapshot of a cluster; nothing is evicted")
    first_plan = _plan_of_bundled_snapshot()
    nodes, after = len(first_plan.before.nodes), first_plan.after
    narrator.show_nodes(f"before: {len(first_plan.before.empty_nodes)} of {nodes} nodes are empty", first_plan.before)
    narrator.show_nodes(f"planned: {len(after.empty_nodes)} of {nodes} nodes are empty", after)
    narrator.say(f"{len(first_plan.moves)} moves free {len(first_plan.freed_nodes)} nodes")
    narrator.say(judge_plan(first_plan))
    page = plan_page(first_plan, Occasion(SystemClock().now(), _BUNDLED))
    if report is not None:
        report.write(page)
        return
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        ReportFile.parse(str(folder / _FIRST_PAGE)).write(page)
    except (OSError, InputError) as error:
        narrator.say(f"its page is not written ({printable_line(str(error))}); --report FILE names another place")


def _refuse_options(context: click.Context, names: Sequence[str], meant: str) -> None:
    for option in names:
        if context.get_parameter_source(option.replace("-", "_")) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{option} {meant}")


def _play(name: str, *, keep: bool, output: Output, console: Console) -> int:
    """Play a scene on a cluster of its own, and say what it has shown."""
    settings = SandboxSettings(nodes=SCENES[name].nodes, name=_KEPT_NAME if keep else None)
    with _own_cluster(settings, console, keep=keep) as (narrator, sandbox):
        if sandbox is None:
            return _NO_CLUSTER
        result = play_scene(name, sandbox, narrator)
    _print_scene(result, output)
    return 0 if result.shown else _FAILED


def _run_on_real_nodes(count: int, *, keep: bool, output: Output, console: Console) -> int:
    """Run the demo on nodes that run containers, and say what the client of these has seen."""
    settings = SandboxSettings(real_nodes=count, name=_KEPT_NAME if keep else None)
    with _own_cluster(settings, console, keep=keep) as (narrator, sandbox):
        if sandbox is None:
            return _NO_CLUSTER
        result = run_real_demo(sandbox, narrator)
    _print_real(result, output, console)
    return 0 if result.succeeded else _FAILED


def _print_rows(rows: Iterable[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    Terminal().print(table)


def _print_real(result: RealDemoResult, output: Output, console: Console) -> None:
    if not output.for_people:
        write_described(asdict(result), output, indent=None)
        return
    rows = (
        ("nodes freed", f"{result.freed_nodes} of {result.nodes}"),
        ("moves", str(result.moves)),
        ("landed on their planned node", f"{result.landed_on_target} of {result.moves}"),
        ("fewest ready endpoints", f"{result.fewest_endpoints} of {result.pods}"),
        ("seconds", f"{result.seconds:.1f}"),
    )
    _print_rows(rows)
    for failure in result.failures:
        console.print(f"failed: {failure}", highlight=False, markup=False)
    console.print(result.outcome, highlight=False, markup=False)
    Terminal().print(f"{result.requests:,} requests, {result.failed:,} failed", style="bold", highlight=False)


def _print_scene(result: SceneResult, output: Output) -> None:
    if not output.for_people:
        write_described(asdict(result), output, indent=None)
        return
    verdict = "shown" if result.shown else "not shown"
    Terminal().print(f"{verdict} in {result.seconds:.0f} s: {result.sentence}", highlight=False, markup=False)


def build_demo_page(demo_run: DemoRun) -> ReportPage:
    """Return the page of the demo's run."""
    occasion = Occasion(SystemClock().now(), "The demo's cluster")
    if (carried_out := demo_run.carried_out) is None:
        return plan_page(demo_run.planned, occasion)
    status, proposed_plan = carried_out.status, replace(demo_run.planned, moves=carried_out.spec.moves)
    plan_outcome = PlanOutcome(
        plan=carried_out.metadata.name,
        phase=carried_out.phase,
        statuses=status.moves,
        freed_nodes=status.achieved.freed_nodes if status.achieved else (),
        pending=demo_run.result.pending,
        seconds=status.achieved.seconds if status.achieved else 0.0,
    )
    return run_page(Outcome(Verdict.CARRIED_OUT, plan_outcome), proposed_plan, occasion, measured=demo_run.after)


_BUNDLED: Final = "The bundled snapshot of the demo"


def _plan_bundled(output: Output, report: ReportFile | None) -> int:
    """Show the plan for the snapshot that comes with the program."""
    return _show_plan(_plan_of_bundled_snapshot(), _BUNDLED, output, report)


def _plan_of_bundled_snapshot() -> Plan:
    with as_file(files("berth_descheduler.capabilities.demo") / "data" / "demo-snapshot.json.gz") as path:
        snapshot = read_snapshot_file(str(path))
    return plan(snapshot, PLANNER_SETTINGS)


def _plan_on(kubeconfig: str | None, context: str | None, output: Output, report: ReportFile | None) -> int:
    """Show what the demo would do on a cluster, with the pace for services of others; write nothing there."""
    settings = replace(PLANNER_SETTINGS, limits=PlanLimits())
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-demo") as client:
        snapshot = read_live_snapshot(client)
    proposed_plan = plan(snapshot, settings, ClockDeadline(SystemClock(), settings.search.time_limit_seconds))
    exit_code = _show_plan(proposed_plan, "Live cluster", output, report)
    hint = "nothing was changed; `berth run` asks before it moves these pods, once the operator is in the cluster"
    Terminal(stderr=True).print(hint, highlight=False)
    return exit_code


def _show_plan(proposed_plan: Plan, cluster: str, output: Output, report: ReportFile | None) -> int:
    """Show a plan that is not carried out."""
    if report is not None:
        report.write(plan_page(proposed_plan, Occasion(SystemClock().now(), cluster)))
    if not output.for_people:
        nodes, quality = len(proposed_plan.before.nodes), proposed_plan.quality
        numbers = {
            "nodes": nodes,
            "freed_nodes": len(proposed_plan.freed_nodes),
            "upper_bound": quality.upper_bound if quality else nodes,
            "proven_optimal": quality is not None and quality.proven_optimal,
            "moves": len(proposed_plan.moves),
            "landed_on_target": 0,
            "pending": 0,
            "seconds": 0.0,
            "plan_only": True,
            "plan": describe_plan(proposed_plan),
        }
        write_described(numbers, output, indent=None)
    else:
        print_plan(proposed_plan, output_console())
    return 0


def _print(result: DemoResult, output: Output, console: Console) -> None:
    if not output.for_people:
        write_described(asdict(result), output, indent=None)
        return
    rows = (
        ("nodes freed", f"{result.freed_nodes} of {result.nodes}"),
        ("no plan frees more than", str(result.upper_bound)),
        ("moves", str(result.moves)),
        ("landed on their planned node", f"{result.landed_on_target} of {result.moves}"),
        ("pods pending / lost", f"{result.pending} / {result.lost} of {result.pods}"),
        ("seconds", f"{result.seconds:.1f}"),
    )
    _print_rows(rows)
    console.print(result.outcome, highlight=False, markup=False)


def _say_how_to_look(console: Console, sandbox: Sandbox) -> None:
    lines = (
        "the cluster stays up, and both services run on it; look around with",
        f"  export KUBECONFIG={sandbox.kubeconfig}",
        "  berth top",
        "  berth show",
        "  berth fragmentation --shape cpu=8,memory=32Gi",
        "  kubectl get berth --all-namespaces",
        "and try",
        f"  kubectl apply -f reservation.yaml   (that of operator/README.md, in the namespace {EXAMPLE_NAMESPACE})",
        f"  kubectl wait -n {EXAMPLE_NAMESPACE} --for=condition=Available reservation/room-for-training",
        "  kubectl apply -f nightly.yaml       (the DeschedulerPolicy of README.md), then",
        "  berth policies run nightly --wait; berth show; berth approve PLAN --wait",
        f"logs of the run: {' '.join(str(path) for path in log_files(sandbox.folder))}",
        f"logs of both services now: {sandbox.folder / 'logs'}",
        f"end it with: berth sandbox down --name {_KEPT_NAME}",
    )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
