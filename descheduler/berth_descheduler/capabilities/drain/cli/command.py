"""`berth drain`: cordons nodes and moves their pods, until nothing is left there or nothing more can go."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from berth_core import (
    InputError,
    MigrationPlan,
    MoveStatus,
    Node,
    Pod,
    SystemClock,
    count,
    first_few,
    matches_labels,
    parse_selector,
)
from berth_descheduler.capabilities.drain.cli.nodes import cordon_nodes, read_pods_to_drain, uncordon_nodes
from berth_descheduler.capabilities.drain.cli.options import drain_options, settings_to_drain
from berth_descheduler.capabilities.drain.cli.progress import DrainProgress, print_drain
from berth_descheduler.capabilities.drain.cli.retries import find_given_up, find_retried_pods
from berth_descheduler.capabilities.drain.plugin import NodeDrain
from berth_descheduler.cli.lost_leases import run_persistently
from berth_descheduler.cli.run import LISTED_FAILURES, exit_code, plan_names, print_outcome
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.absent_programs import OPERATOR, why_absent
from berth_descheduler.migration.moves.overdue_pods import is_overdue
from berth_descheduler.migration.nodes.freed import why_they_stay
from berth_descheduler.migration.plans.not_begun import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from berth_descheduler.options import (
    GroupedCommand,
    Output,
    cluster_options,
    complete_nodes,
    objects_output_option,
    write_described,
    write_names,
)
from berth_descheduler.options.planner import harmless_owners_option
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Plan
from berth_descheduler.plugins import installed_plugins, on_demand_settings
from berth_descheduler.policy import PlanSettings, RunDefaults, read_plan_settings
from berth_descheduler.report import Terminal, describe_plan, describe_run
from berth_kube import MIGRATION_PLANS, NODES, KubeClient, connect
from berth_service.logs import configure_logs
from berth_service.signals import stop_on_signals

_LOOK_SECONDS: Final = 1.0

_POOL_LABELS: Final = (
    "pool",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)
"""The labels by which cloud providers and autoscalers name a node's pool."""

_NODES_SHOWN: Final = 5
_SUCCESSES: Final = frozenset({Verdict.CARRIED_OUT, Verdict.NOTHING_TO_MOVE})


@click.command("drain", cls=GroupedCommand)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes)
@click.option("-l", "--selector", metavar="LABELS", help="Drain the nodes with these labels, such as rack=7,!gpu.")
@click.option("--pool", metavar="NAME", help="Drain the nodes of this pool, which a label names.")
@cluster_options
@drain_options
@click.option("--uncordon-on-failure", is_flag=True, help="Uncordon what this command cordoned if pods are left there.")
@click.option("--dry-run", is_flag=True, help="Plan only: nothing is cordoned or moved.")
@click.option("--verbose", is_flag=True, help="Log every step to standard error.")
@objects_output_option
def drain_command(
    *,
    nodes: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    uncordon_on_failure: bool,
    dry_run: bool,
    verbose: bool,
    output: Output,
    **options: Any,  # noqa: ANN401 - read once, below
) -> int:
    """Cordon nodes and move all their pods, each to a place that is reserved before its eviction.

    All places are planned first: if a pod cannot go, it is named with the reason, and nothing is moved. DaemonSet and
    mirror pods stay. Exit code 1 if anything else is left on the nodes.
    """
    wanted_nodes = _Wanted(nodes, options["selector"], options["pool"])
    wanted_nodes.check()
    defaults = settings_to_drain(options, dry_run=dry_run)
    configure_logs("info" if verbose else "error", as_json=False)
    with (
        connect(kubeconfig=kubeconfig, context=context, user_agent="berth-drain") as client,
        stop_on_signals() as stop,
        DrainProgress(Terminal(stderr=True), asks_for_approval=False, stop=stop) as progress,
    ):
        chosen_nodes = choose_nodes(client.list(NODES, type=Node).items, wanted_nodes)
        plugin = NodeDrain(
            nodes=frozenset(chosen_nodes),
            delete_empty_dirs=options["delete_emptydir_data"],
            skip_refused=options["skip_refused"],
            harmless_owners=harmless_owners_option(options["harmless_owner"]),
        )
        drain = _Drain(client, stop, progress, defaults, plugin)
        drained = drain.try_out() if dry_run else drain.carry_out(uncordon_on_failure=uncordon_on_failure)
    if output.for_people:
        _print_drained(drained, progress.proposed_plan, Terminal())
    elif output is Output.NAME:
        names = dict.fromkeys(plan_name for outcome in drained.outcomes for plan_name in plan_names(outcome))
        write_names(MIGRATION_PLANS.name_for_kubectl, names)
    else:
        write_described(_describe_drain(drained, progress.proposed_plan), output)
    return exit_code(stop, well=drained.complete)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which nodes to drain, as typed."""

    names: Sequence[str] = ()
    selector: str | None = None
    pool: str | None = None

    def check(self) -> None:
        """Raise `InputError` for options that contradict one another, or that name no node."""
        if not self.names and self.selector is None and self.pool is None:
            raise InputError("NODE", None, "the name of a node, --selector or --pool", said="missing")
        if self.names and (self.selector is not None or self.pool is not None):
            option = "--pool" if self.selector is None else "--selector"
            raise InputError(option, self.selector or self.pool, "no names of nodes beside it")
        repeated_node = next((node for index, node in enumerate(self.names) if node in self.names[:index]), None)
        if repeated_node is not None:
            raise InputError("NODE", repeated_node, "each node once")
        # Reads the selector once before the cluster is asked, so that a typo is reported first.
        self.selects(Node())

    def selects(self, node: Node) -> bool:
        """Return whether the options select a node; raises `InputError` for an unreadable selector."""
        labels = node.metadata.labels
        try:
            by_labels = self.selector is None or matches_labels(parse_selector(self.selector), labels)
        except InputError as error:
            raise InputError("--selector", error.value, error.expected) from error
        return by_labels and (self.pool is None or self.pool in {labels.get(label) for label in _POOL_LABELS})


def choose_nodes(nodes: Iterable[Node], wanted: _Wanted) -> tuple[str, ...]:
    """Return the names of the nodes to drain, sorted.

    Raises `InputError` for a node that is not there, for options that select none, and if none would be left.
    """
    node_by_name = {node.metadata.name: node for node in nodes}
    example_nodes = first_few(sorted(node_by_name), _NODES_SHOWN)
    if unknown := next((node for node in wanted.names if node not in node_by_name), None):
        raise InputError("NODE", unknown, f"a node of the cluster, such as {example_nodes}")
    chosen_names = wanted.names or [node_name for node_name, node in node_by_name.items() if wanted.selects(node)]
    if not chosen_names and wanted.selector is not None:
        and_pool = "" if wanted.pool is None else f" and belongs to the pool {wanted.pool}"
        raise InputError("--selector", wanted.selector, f"labels that a node has{and_pool}")
    if not chosen_names:
        raise InputError("--pool", wanted.pool, f"a pool that a node names in one of {', '.join(_POOL_LABELS)}")
    # No node would be left for the pods; `kubectl drain` would evict them all and leave them pending.
    if len(chosen_names) == len(node_by_name):
        field_name = "NODE" if wanted.names else "--pool" if wanted.selector is None else "--selector"
        raise InputError(field_name, " ".join(sorted(chosen_names)), "at least one node fewer: these are all there are")
    return tuple(sorted(chosen_names))


@dataclass(frozen=True, slots=True)
class _Drained:
    """The result of a drain."""

    nodes: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    """The outcomes of its cycles, except those that waited for the lease in vain before another cycle."""

    complete: bool
    """Whether no pod is left on the nodes that had to go; after a dry run, whether all could go."""

    closed: tuple[str, ...] = ()
    """The nodes that were open before, and are cordoned now."""

    opened: tuple[str, ...] = ()
    remaining: tuple[Pod, ...] = ()
    stuck: Mapping[str, str] = field(default_factory=dict)
    """Why some of the remaining pods, by `namespace/name`, are being deleted and do not end."""

    @property
    def outcome(self) -> Outcome:
        return self.outcomes[-1]


@dataclass(slots=True)
class _Drain:
    """One drain of some nodes."""

    client: KubeClient
    stop: threading.Event
    progress: DrainProgress
    defaults: RunDefaults
    """The settings of its cycles, and those of the planner without the drain."""

    plugin: NodeDrain
    _clock: SystemClock = field(default_factory=SystemClock)
    _deadline: float = 0.0
    _has_begun: bool = False
    """Whether a plan of the drain was carried out."""

    _given_up: frozenset[str] = frozenset()
    """Pods, as `namespace/name`, whose moves would fail again."""

    def try_out(self) -> _Drained:
        """Return what would be done."""
        outcome = self._cycle()
        proposed_plan = self.progress.proposed_plan
        return _Drained(
            self._nodes, (outcome,), complete=proposed_plan is None or not proposed_plan.pods_staying_on(self._nodes)
        )

    def carry_out(self, *, uncordon_on_failure: bool) -> _Drained:
        """Cordon the nodes and move their pods; take back the cordon on failure if asked to.

        Nothing is cordoned if pods would have to move and no operator runs that could hold places for them.
        """
        # Asked before the cordon: a cordon that is taken back is still seen by autoscalers and by people.
        if (remaining := read_pods_to_drain(self.client, self._nodes)) and (why := self._why_no_operator()):
            outcome = Outcome(Verdict.NO_OPERATOR, why=f"Not begun, and nothing was cordoned: {why}.")
            return _Drained(self._nodes, (outcome,), complete=False, remaining=remaining)
        cordoned_nodes: list[str] = []
        uncordoned_nodes: tuple[str, ...] = ()
        complete = False
        try:
            # Only nodes that this command cordoned are uncordoned again: another cordon may have its reason.
            cordoned_nodes.extend(cordon_nodes(self.client, self._nodes))
            drained = self._empty()
            complete = drained.complete
        finally:
            if uncordon_on_failure and not complete:
                uncordoned_nodes = self._uncordon(cordoned_nodes)
        return replace(
            drained,
            closed=tuple(node for node in cordoned_nodes if node not in uncordoned_nodes),
            opened=uncordoned_nodes,
        )

    def _why_no_operator(self) -> str:
        namespace = self.defaults.cycle.namespace
        return why_absent(self.client, self._clock, OPERATOR, namespace=namespace, is_stopped=self.stop.is_set)

    @property
    def _nodes(self) -> tuple[str, ...]:
        return tuple(sorted(self.plugin.nodes))

    def _uncordon(self, nodes: Sequence[str]) -> tuple[str, ...]:
        failed_nodes = uncordon_nodes(self.client, nodes)
        uncordoned_nodes = tuple(node for node in nodes if node not in failed_nodes)
        self.progress.uncordoned(uncordoned_nodes, failed_nodes)
        return uncordoned_nodes

    def _empty(self) -> _Drained:
        """Make cycles until nothing is left that may go by then, or the time is over."""
        self._deadline = self._clock.monotonic() + (self.defaults.cycle.execution.max_seconds or 0.0)
        outcomes: list[Outcome] = []
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            seconds_left = max(_LOOK_SECONDS, self._deadline - self._clock.monotonic())
            # The time limit is one for the whole drain; a cycle that had it anew each time would never let the command
            # end.
            outcome = self._cycle(max_seconds=seconds_left)
            remaining = self._await_the_end()
            goes_on = self._goes_on(outcome, remaining)
            if not goes_on or outcome.plan is not None:
                outcomes.append(outcome)
            if goes_on and not (outcome.plan is not None and outcome.plan.landed_on_target):
                # Pods that did not go now may go later. The pause grows, for each try reads the whole cluster.
                self.stop.wait(min(pause_seconds, max(0.0, self._deadline - self._clock.monotonic())))
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                pause_seconds = FIRST_PAUSE_SECONDS
            if not goes_on:
                went_well = outcome.verdict in _SUCCESSES and (outcome.plan is None or outcome.plan.clean)
                return _Drained(
                    self._nodes,
                    tuple(outcomes),
                    complete=went_well and not remaining,
                    remaining=remaining,
                    stuck=self._find_stuck(remaining),
                )

    def _find_stuck(self, pods: Iterable[Pod]) -> dict[str, str]:
        """Return the pods that are being deleted and do not end, with what keeps each."""
        now = self._clock.now()
        stuck_pods = [pod for pod in pods if is_overdue(pod, now, self._end_seconds)]
        reasons = why_they_stay(self.client, stuck_pods)
        return {pod.key: reasons[pod.metadata.uid] for pod in stuck_pods}

    def _goes_on(self, outcome: Outcome, remaining: tuple[Pod, ...]) -> bool:
        """Return whether another cycle may bring more pods away."""
        if self._is_over:
            return False
        if outcome.verdict is Verdict.LEASE_HELD:
            return True
        if outcome.plan is not None:
            self._begin_retries(outcome.plan.statuses)
        if not self._has_begun:
            return False
        retried_pods = find_retried_pods(outcome, self.progress.proposed_plan, self._given_up, remaining, self._nodes)
        self.progress.waiting(retried_pods)
        has_moved = outcome.plan is not None and outcome.plan.landed_on_target > 0
        # The next cycle notes in the plan what keeps moved pods that do not end.
        return bool(retried_pods) or (has_moved and any(pod.is_terminating for pod in remaining))

    def _begin_retries(self, statuses: Iterable[MoveStatus]) -> None:
        """Note what a plan of the drain gave up; once one was carried out, pods that cannot go keep no others."""
        self._has_begun = True
        self._given_up |= find_given_up(statuses)
        # All or nothing is a promise about the beginning. Half-drained, it would only keep the rest on the nodes.
        self.plugin = replace(self.plugin, skip_refused=True)

    def _await_the_end(self) -> tuple[Pod, ...]:
        """Wait until no pod on the nodes is being deleted, but for pods that do not end; return what is left."""
        while True:
            remaining, now = read_pods_to_drain(self.client, self._nodes), self._clock.now()
            # A pod with a finalizer, or on a node whose kubelet is gone, stays in the API past its grace period;
            # nothing here ends it.
            ending_pods = (pod for pod in remaining if pod.is_terminating)
            if self._is_over or all(is_overdue(pod, now, self._end_seconds) for pod in ending_pods):
                return remaining
            self.stop.wait(_LOOK_SECONDS)

    @property
    def _end_seconds(self) -> float:
        return self.defaults.cycle.execution.timeouts.end_seconds

    @property
    def _is_over(self) -> bool:
        return self.stop.is_set() or self._clock.monotonic() >= self._deadline

    def _cycle(self, max_seconds: float | None = None) -> Outcome:
        cycle = self.defaults.cycle
        settings = replace(cycle, execution=replace(cycle.execution, max_seconds=max_seconds))
        planner = on_demand_settings(self.defaults.planner, self.plugin).at(self._clock.now())

        def settings_of_plan(plan: MigrationPlan) -> PlanSettings:
            return read_plan_settings(self.client, plan, self.defaults, installed_plugins(), self._clock.now())

        context = CycleContext(self.client, self._clock, self.progress, self.stop, settings_of_plan)
        return run_persistently(lambda context: Cycle(context, settings, planner), context, max_seconds)


class DrainDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `berth drain` writes for machines."""

    nodes: tuple[str, ...]
    complete: bool
    cordoned: tuple[str, ...]
    uncordoned: tuple[str, ...]
    remaining: tuple[dict[str, str], ...]
    """Namespace, name and node of each pod, and a `reason` if it is being deleted and does not end."""
    plan: Any
    runs: tuple[Any, ...]


def _describe_drain(done: _Drained, plan: Plan | None) -> DrainDocument:
    pods = (
        {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "node": pod.spec.node_name}
        | ({"reason": done.stuck[pod.key]} if pod.key in done.stuck else {})
        for pod in done.remaining
    )
    return DrainDocument(
        nodes=done.nodes,
        complete=done.complete,
        cordoned=done.closed,
        uncordoned=done.opened,
        remaining=tuple(pods),
        plan=None if plan is None else describe_plan(plan),
        runs=tuple(map(describe_run, done.outcomes)),
    )


def _why_stuck(done: _Drained, pod: Pod) -> str:
    return f" ({done.stuck[pod.key]})" if pod.key in done.stuck else ""


def _print_drained(done: _Drained, plan: Plan | None, console: Console) -> None:
    """Show what a drain did to people."""
    if plan is not None and done.outcome.verdict in {Verdict.DRY_RUN, Verdict.PODS_STAY}:
        print_drain(plan, plan.pods_staying_on(done.nodes), console)
    if done.outcome.verdict is Verdict.DRY_RUN:
        return
    for outcome in done.outcomes:
        print_outcome(outcome, console)
    names = ", ".join(done.nodes)
    pods = [f"{pod.key} on {pod.spec.node_name}{_why_stuck(done, pod)}" for pod in done.remaining]
    if done.complete:
        summary = f"drained: {names}"
    elif pods:
        summary = f"not drained: {count(len(pods), 'pod')} left: {first_few(pods, LISTED_FAILURES)}"
    else:
        summary = f"nothing is left on {names}, but not everything went as planned"
    console.print(summary, highlight=False)
