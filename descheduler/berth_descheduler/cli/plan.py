"""`berth plan`: shows what would be moved in a snapshot or in the live cluster, and changes nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import click
import msgspec

from berth_core import (
    ClockDeadline,
    Deadline,
    InputError,
    MoveMethod,
    NoDeadline,
    PlannedMove,
    Snapshot,
    SnapshotKind,
    SystemClock,
    parse_kinds,
)
from berth_core.decoding import convert
from berth_descheduler.capability import PlanTrial, TriedPlan
from berth_descheduler.cli.snapshot import snapshot_option
from berth_descheduler.migration.moves.surge_eligibility import find_unsurgeable
from berth_descheduler.options import (
    GroupedCommand,
    Output,
    cluster_options,
    moves_option,
    namespace_option,
    naming_what_was_typed,
    output_option,
    planner_options,
    policy_option,
    settings_to_plan,
    write_described,
)
from berth_descheduler.planner import (
    Plan,
    PlannerSettings,
    explain_kept_pods,
    plan,
    plan_surges,
    with_evictions_first,
    with_ways,
    without_surges,
)
from berth_descheduler.policy import PlanInput, find_restrictions, read_documents
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_descheduler.report import (
    Occasion,
    ReportFile,
    Terminal,
    describe_plan,
    missing_in_words,
    output_console,
    plan_page,
    price_option,
    print_plan,
    refuse_second_prices,
    report_option,
    working,
)
from berth_descheduler.snapshots import LiveCluster, PlanSource, SnapshotFile
from berth_kube import DEPLOYMENTS, connect
from berth_service.extras import Extra, require
from berth_service.memory import collect_garbage_rarely

_FAILED: Final = 1
_FOR_OUTPUT: Final = 0.02
"""The part of `--time-limit` that is left to write the plan."""

_PLAN_TRIALS: Final = tuple(trial for capability in EVERY_CAPABILITY for trial in capability.plan_trials)


def _trial_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options by which capabilities try a plan out."""
    for trial in reversed(_PLAN_TRIALS):
        command = click.option(trial.option, is_flag=True, help=trial.help)(command)
    return command


@click.command("plan", cls=GroupedCommand)
@snapshot_option
@click.option(
    "--snapshot-kinds",
    metavar="KINDS",
    help="Kinds that the file covers, such as nodes,pods,poddisruptionbudgets.policy, or all: if it has no object of "
    "such a kind, there is none. `berth snapshot` records them; kubectl does not.",
)
@cluster_options
@policy_option
@planner_options
@namespace_option
@moves_option
@click.option(
    "--like",
    type=click.Path(),
    metavar="FILE",
    help="Keep to an earlier plan where it frees as much: what `berth plan -o json` wrote, or a MigrationPlan. Only "
    "consolidate does.",
)
@click.option("--at", metavar="TIME", help="RFC 3339 time to count the cool-down from; default: now.")
@output_option
@click.option("--every-pod", is_flag=True, help="For machines: name each pod that is not moved, with the reason.")
@_trial_options
@report_option
@price_option
def plan_command(
    *,
    snapshot: str | None,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    like: str | None,
    at: str | None,
    output: Output,
    every_pod: bool,
    report: ReportFile | None,
    **options: Any,  # noqa: ANN401
) -> int:
    """Show what would be moved where, what that brings, and why not more. Changes nothing.

    Exit code 1 if a rehearsal differed from the plan.
    """
    began_seconds = SystemClock().monotonic()
    collect_garbage_rarely()
    trial = next((trial for trial in _PLAN_TRIALS if options[trial.parameter]), None)
    if trial is not None:
        require(Extra.DEMO, trial.option)
    settings, moves = settings_to_plan(options, policy, at=at)
    if like is not None:
        settings = replace(settings, run=replace(settings.run, earlier=_read_earlier_moves(like)))
    refuse_second_prices(options["price"], is_priced=settings.weighs_nodes)
    stated_kinds = _stated(snapshot, options["snapshot_kinds"])
    with naming_what_was_typed(options, policy), _reading(snapshot, stated_kinds, kubeconfig, context) as source:
        with working("reading the cluster"):
            read = source.read(options["namespace"], settings.plugins.reads)
        with working("planning"):
            deadline = _deadline_since(began_seconds, settings)
            proposed_plan = _plan(read, settings, source if moves is MoveMethod.SURGE else None, deadline)
        deployments = _read_deployments(read, source) if trial is not None and proposed_plan.moves else None
    if report is not None:
        cluster = f"Live cluster{f', context {context}' if context else ''}" if snapshot is None else f"File {snapshot}"
        report.write(plan_page(proposed_plan, Occasion(SystemClock().now(), cluster), options["price"]))
    if output.for_people:
        print_plan(proposed_plan, output_console(), options["price"], wide=output is Output.WIDE)
    else:
        for line in missing_in_words(proposed_plan):
            click.echo(line, err=True)
    described = describe_plan(proposed_plan, explain_kept_pods(read, proposed_plan) if every_pod else None)
    if trial is not None and deployments is not None:
        tried_plan = trial.load()(proposed_plan, read, deployments, moves, Terminal(stderr=True))
        return _show_trial(trial, tried_plan, output, described)
    if not output.for_people:
        write_described(described, output)
    return 0


def _read_earlier_moves(name: str) -> tuple[PlannedMove, ...]:
    """Return the moves of a file with a plan, as `berth plan` describes it or as a MigrationPlan.

    Raises `InputError` for a file with none.
    """
    expected = "a file with a plan, as `berth plan -o json` or `kubectl get migrationplan -o json` writes it"
    documents = read_documents(name, "--like")
    content = documents[0].content if len(documents) == 1 else None
    described = content.get("spec", content) if isinstance(content, dict) else None
    moves = described.get("moves") if isinstance(described, dict) else None
    if not isinstance(moves, list):
        raise InputError("--like", name, expected)
    try:
        return convert(moves, tuple[PlannedMove, ...])
    except msgspec.ValidationError as error:
        raise InputError("--like", name, expected) from error


def _read_deployments(read: Snapshot, source: PlanSource) -> list[dict[str, Any]]:
    """Return the Deployments of the cluster's ReplicaSets, none where the file lacks that kind."""
    if SnapshotKind.DEPLOYMENTS in source.lacking_for_surges:
        return []
    namespaces = sorted({workload.metadata.namespace for workload in read.workloads})
    return [
        deployment
        for namespace in namespaces
        for deployment in source.objects.list(DEPLOYMENTS, namespace=namespace).items
    ]


def _show_trial(trial: PlanTrial, tried_plan: TriedPlan, output: Output, described: object) -> int:
    """Show how the plan went where it was tried, and return the exit code."""
    if output.for_people:
        tried_plan.print_on(output_console())
    else:
        document = {**msgspec.to_builtins(described, str_keys=True), trial.result: tried_plan.describe()}
        write_described(document, output)
    return 0 if tried_plan.as_predicted else _FAILED


def _stated(snapshot: str | None, kinds: str | None) -> frozenset[SnapshotKind]:
    """Return the kinds that the caller states for a snapshot file.

    Raises `InputError` without a snapshot file, and for invalid kinds.
    """
    if kinds is None:
        return frozenset()
    if snapshot is None:
        raise InputError("--snapshot-kinds", kinds, "--snapshot beside it: of a live cluster all kinds are read")
    try:
        return parse_kinds(kinds)
    except InputError as error:
        raise InputError("--snapshot-kinds", error.value, error.expected) from error


@contextmanager
def _reading(
    snapshot: str | None, stated: frozenset[SnapshotKind], kubeconfig: str | None, context: str | None
) -> Iterator[PlanSource]:
    """Yield what to plan on: a file, or the live cluster."""
    if snapshot is not None:
        yield SnapshotFile(snapshot, stated)
        return
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-plan") as client:
        yield LiveCluster(client)


def _deadline_since(began_seconds: float, settings: PlannerSettings) -> Deadline:
    """Return a deadline that counts from when the command began, and leaves a part of the time for its output."""
    clock, limit_seconds = SystemClock(), settings.search.time_limit_seconds
    if limit_seconds is None:
        return NoDeadline()
    seconds_used = clock.monotonic() - began_seconds
    return ClockDeadline(clock, max(0.0, (1 - _FOR_OUTPUT) * limit_seconds - seconds_used))


def _plan(read: Snapshot, settings: PlannerSettings, source: PlanSource | None, deadline: Deadline) -> Plan:
    """Plan as a run does, and find what holds the plan back; without a source all pods are evicted first."""
    plan_input = PlanInput(read, settings)
    proposed_plan = _plan_once(plan_input, source, deadline)
    restrictions = find_restrictions(
        plan_input, proposed_plan, lambda plan_input_again: _plan_once(plan_input_again, source, deadline), deadline
    )
    return replace(proposed_plan, restrictions=restrictions)


def _plan_once(given: PlanInput, source: PlanSource | None, deadline: Deadline) -> Plan:
    read, settings = given.snapshot, given.settings

    def make(snapshot: Snapshot, until: Deadline = deadline) -> Plan:
        return plan(snapshot, settings, until)

    if source is None:
        return with_evictions_first(make(read))
    if lacking := source.lacking_for_surges:
        return without_surges(read, make, lacking)
    why_not = partial(find_unsurgeable, source.objects)
    return with_ways(plan_surges(read, make, why_not, deadline), read, why_not)
