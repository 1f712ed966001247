"""Checks policies before they run: errors keep one from running, warnings say what will not work well.

Notes say what only a cluster can tell.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from berth_core import DeschedulerPolicy, InputError, Limits, RunMode, Snapshot, count, field_steps, format_duration
from berth_descheduler.planner.cool_downs import SourceCoolDown
from berth_descheduler.plugins import PLUGIN_NAME, DefaultEvictor, Defragmentation, PluginRegistry, goal_of
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.parsing import PolicyRun, RunDefaults, read_policy
from berth_descheduler.policy.profiles import errors_in
from berth_descheduler.policy.schedule import IntervalSchedule, Schedule
from berth_descheduler.policy.upstream import UpstreamProfile, is_upstream, not_installed, read_upstream
from berth_kube import LocatedDocument

MOST_ERRORS: Final = 50
"""How many errors of a policy are reported at once."""

_MANY_REPLICAS: Final = 20
_USUAL_PODS: Final = 5
"""How many pods of one namespace a node in use holds at least, where nothing is known of the cluster."""
_DECISIVE: Final = frozenset({"cron", "strategy"})
"""Fields that decide what those beside them mean, so that these are wrong without them."""
_VALUES_OF_OUR_CHART: Final = frozenset({"operator", "descheduler", "policies", "image", "monitoring"})
# A fixed day, so that what is said of a schedule does not depend on when it is asked.
_SOME_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MANY_RUNS: Final = 50


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    """What cannot be judged here; nothing is wrong with the policy for it."""


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """One finding about a policy."""

    severity: Severity
    field: str
    message: str
    line: int | None = None
    """The line in the file, from 1; None where the file does not have the field."""

    @property
    def sentence(self) -> str:
        """Return the field and the message."""
        return f"{self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings on one policy."""

    name: str
    findings: tuple[PolicyFinding, ...]

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity is severity for finding in self.findings)


Check = Callable[[DeschedulerPolicy, PolicyRun], Iterator[PolicyFinding]]


def lint_located(
    document: LocatedDocument, registry: PluginRegistry, snapshot: Snapshot | None = None
) -> tuple[Linted, ...]:
    """Return what `lint_document` finds, with the line of each finding."""
    linted = []
    for linted_policy in lint_document(document.content, registry, snapshot):
        findings = (replace(finding, line=document.line_of(finding.field)) for finding in linted_policy.findings)
        linted.append(
            replace(linted_policy, findings=tuple(sorted(findings, key=lambda finding: finding.line or sys.maxsize)))
        )
    return tuple(linted)


def lint_document(raw: object, registry: PluginRegistry, snapshot: Snapshot | None = None) -> tuple[Linted, ...]:
    """Return the findings on a document's policies, ours or upstream's, for a cluster if there is a snapshot of it."""
    if isinstance(raw, Mapping) and "kind" not in raw and (chart := _chart_of_values(raw)):
        return (Linted("", (PolicyFinding(Severity.ERROR, "kind", chart),)),)
    if not isinstance(raw, Mapping) or not is_upstream(raw):
        return (_lint_policy(raw, registry, snapshot),)
    try:
        profiles = read_upstream(raw, registry.names)
    except InputError as error:
        return (Linted(_name_of(raw), find_errors(error)),)
    return tuple(_lint_profile(index, profile, registry, snapshot) for index, profile in enumerate(profiles))


def _chart_of_values(raw: Mapping[object, object]) -> str:
    """Return what to do with a file of values for a chart, "" if it is none."""
    if "deschedulerPolicy" in raw:
        return "is missing: these are values of the upstream descheduler's chart; give what is below deschedulerPolicy"
    if "apiVersion" not in raw and _VALUES_OF_OUR_CHART & raw.keys():
        command = "helm template helm/berth --values FILE --show-only templates/policies.yaml | berth policy lint -"
        return f"is missing: these are values of Berth's chart; for the policies that it makes of them: {command}"
    return ""


def _lint_profile(index: int, profile: UpstreamProfile, registry: PluginRegistry, snapshot: Snapshot | None) -> Linted:
    """Return the findings on one profile of an upstream file, with fields named as they would be in a policy."""
    linted = _lint_policy(profile.raw, registry, snapshot)
    missing = (
        find_errors(not_installed(f"profiles[{index}]", profile.missing, registry.names)) if profile.missing else ()
    )
    left_out = tuple(_warning(field, "is not taken over: it means nothing here") for field in profile.left_out)
    return Linted(linted.name, (*missing, *left_out, *linted.findings))


def _lint_policy(raw: object, registry: PluginRegistry, snapshot: Snapshot | None) -> Linted:
    """Return all that is wrong with a policy, or what will not work well.

    Reading ends at some errors. So what they are about is taken out, and the rest is read, until nothing new is found.
    """
    raw_rest, errors, removed_fields = deepcopy(raw), dict[tuple[str, str], PolicyFinding](), set[str]()
    while True:
        try:
            policy = decode_policy(raw_rest)
            run = read_policy(policy, RunDefaults(), registry)
        except InputError as error:
            new_errors = {
                (finding.field, finding.message): finding
                for finding in find_errors(error)
                if finding.field not in removed_fields
            }
            if new_errors.keys() <= errors.keys():
                return Linted(_name_of(raw), tuple(errors.values()))
            errors |= new_errors
            if len(errors) >= MOST_ERRORS:  # each round reads the whole policy
                text = f"the first {MOST_ERRORS} errors are named here; look again once they are mended"
                first_errors = tuple(errors.values())[:MOST_ERRORS]
                return Linted(_name_of(raw), (*first_errors, PolicyFinding(Severity.ERROR, "spec", text)))
            for input_error in errors_in(error):
                if _take_out(raw_rest, field_steps(input_error.field), input_error.value):
                    removed_fields.add(input_error.field)
        else:
            return Linted(policy.metadata.name, tuple(errors.values()) or _without_errors(policy, run, snapshot))


def _without_errors(policy: DeschedulerPolicy, run: PolicyRun, snapshot: Snapshot | None) -> tuple[PolicyFinding, ...]:
    """Return the warnings, and notes on what is left to a cluster that is not at hand."""
    return (*find_warnings(policy, run, snapshot), *_find_not_known(run, snapshot))


def _take_out(raw: object, steps: Sequence[str], value: object) -> bool:
    """Remove a wrong value, and return whether the whole field was removed rather than a part of it.

    What is empty without it or then means something else is removed as well. A member of a list stays, and so does its
    name: otherwise the others would have other positions.
    """
    if isinstance(raw, list) and steps and steps[0].isdigit() and int(steps[0]) < len(raw):
        return _take_out(raw[int(steps[0])], steps[1:], value)
    if not isinstance(raw, dict) or not steps or steps[-1] == "name":
        return False
    inner_value, is_whole = raw.get(steps[0]), True
    if len(steps) > 1 and steps[1] not in _DECISIVE:
        is_whole = _take_out(inner_value, steps[1:], value)
    elif isinstance(inner_value, dict) and isinstance(value, str) and value in inner_value:
        del inner_value[value]
        is_whole = False
    else:
        raw.pop(steps[0], None)
    if inner_value == {}:
        raw.pop(steps[0], None)
    return is_whole


def _name_of(raw: object) -> str:
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    policy_name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return policy_name if isinstance(policy_name, str) else ""


def find_errors(error: InputError) -> tuple[PolicyFinding, ...]:
    """Return what keeps a policy from being run."""
    return tuple(
        PolicyFinding(Severity.ERROR, input_error.field, str(input_error).removeprefix(f"{input_error.field} "))
        for input_error in errors_in(error)
    )


def find_warnings(
    policy: DeschedulerPolicy, run: PolicyRun, snapshot: Snapshot | None = None
) -> tuple[PolicyFinding, ...]:
    """Return what will not work well, in the policy's field order; with a snapshot, in that cluster."""
    findings = [finding for check in _CHECKS for finding in check(policy, run)]
    findings += _check_node_limits(policy, run, snapshot)
    return (*findings, *(_warning("spec.profiles[0]", text) for text in run.warnings))


def _check_pace(policy: DeschedulerPolicy, run: PolicyRun) -> Iterator[PolicyFinding]:
    """Compare the time between two runs with the cool-downs and waits that may last longer than that."""
    if run.schedule is None:
        return
    is_interval = isinstance(run.schedule, IntervalSchedule)
    interval, field = _shortest_distance(run.schedule), f"spec.trigger.{'interval' if is_interval else 'cron'}"
    pod_rest = run.cycle.pod_cool_down
    source = run.planner.rule(SourceCoolDown)
    node_rests = {
        "coolDownTime": timedelta(0) if source is None else source.span,
        "spec.limits.nodeCoolDown": run.cycle.node_cool_down,
    }
    for rest_field, node_rest in node_rests.items():
        if interval < node_rest:
            yield _warning(
                field, f"is shorter than {rest_field}, {format_duration(node_rest)}: runs find the same nodes resting"
            )
    if interval < pod_rest:
        text = f"is shorter than spec.limits.podCoolDown, {format_duration(pod_rest)}: runs find the same pods resting"
        yield _warning(field, text)
    waits = timedelta(seconds=run.cycle.approval_seconds)
    if policy.spec.mode is RunMode.APPROVE and interval < waits:
        text = f"is shorter than spec.approval.timeout, {format_duration(waits)}: no run is made while a plan waits"
        yield _warning(field, text)


def _shortest_distance(schedule: Schedule) -> timedelta:
    """Return the shortest time between two of the first runs of a schedule."""
    times = [schedule.next_after(_SOME_DAY)]
    while len(times) < _MANY_RUNS:
        times.append(schedule.next_after(times[-1]))
    return min(later - earlier for earlier, later in pairwise(times))


def _check_mode(policy: DeschedulerPolicy, run: PolicyRun) -> Iterator[PolicyFinding]:
    """Look for an automatic policy that nothing holds back."""
    limits = policy.spec.limits
    if policy.spec.mode is not RunMode.AUTO:
        return
    if limits.max_moves is None and limits.max_moves_per_node is None and limits.max_moves_per_namespace is None:
        text = "Auto without spec.limits.maxMoves moves as many pods as the rules allow: give a limit to begin with"
        yield _warning("spec.mode", text)
    if limits.max_failed_share == 1:
        yield _warning("spec.limits.maxFailedShare", "1 goes on however many moves fail: 0.2 stops in time")
    if not goal_of(run.planner.plugins.balance.plugin.objective).empties_nodes:
        return
    if run.cycle.freed.nothing:
        text = (
            "None leaves freed nodes to whatever comes next, and kube-scheduler spreads pods by default "
            "(LeastAllocated): PreferNoSchedule keeps them free, or an annotation hands them to an autoscaler"
        )
        yield _warning("spec.freedNodes.taint", text)


def _check_limits(policy: DeschedulerPolicy, run: PolicyRun) -> Iterator[PolicyFinding]:
    """Look for limits that contradict one another."""
    limits = policy.spec.limits
    objective = run.planner.plugins.balance.plugin.objective
    goal = goal_of(objective)
    frees_nodes = goal.frees_whole_nodes(objective)
    if not frees_nodes and goal.heeds_min_freed_nodes and limits.min_freed_nodes > Limits().min_freed_nodes:
        text = f"{limits.min_freed_nodes} means nothing without wholeNodes: pods are moved though no node becomes empty"
        yield _warning("spec.limits.minFreedNodes", text)
    if frees_nodes and limits.max_moves is not None and limits.max_moves < limits.min_freed_nodes:
        text = f"{limits.min_freed_nodes} is above maxMoves, {limits.max_moves}: no plan can free so many nodes"
        yield _warning("spec.limits.minFreedNodes", text)
    if limits.max_moves_per_controller > limits.max_moves_per_wave:
        text = f"is above maxMovesPerWave, {limits.max_moves_per_wave}, which is what counts"
        yield _warning("spec.limits.maxMovesPerController", text)
    longest_move = run.cycle.execution.ttl
    if run.cycle.execution.reservation_ttl < longest_move:
        yield _warning(
            "spec.reservation.ttl", f"is shorter than a move may take: places are held {format_duration(longest_move)}"
        )
    max_seconds = run.cycle.execution.max_seconds
    if max_seconds is not None and max_seconds < run.cycle.execution.timeouts.ready_seconds:
        yield _warning("spec.limits.maxDuration", "is shorter than a single move may take: most plans are stopped")


def _check_node_limits(policy: DeschedulerPolicy, run: PolicyRun, snapshot: Snapshot | None) -> Iterator[PolicyFinding]:
    """Look for limits below what has to leave a usual node: such a node is never emptied."""
    limits, objective = policy.spec.limits, run.planner.plugins.balance.plugin.objective
    if not goal_of(objective).frees_whole_nodes(objective):
        return
    loads = () if snapshot is None else tuple(_loads(snapshot))
    numbers = {
        "maxMoves": (limits.max_moves, "pods", [load.total() for load in loads]),
        "maxMovesPerNode": (limits.max_moves_per_node, "pods", [load.total() for load in loads]),
        "maxMovesPerNamespace": (
            limits.max_moves_per_namespace,
            "pods of one namespace",
            [max(load.values()) for load in loads],
        ),
    }
    for name, (limit, counted, per_node) in numbers.items():
        usual = sorted(per_node)[len(per_node) // 2] if per_node else _USUAL_PODS
        if limit is None or limit >= usual:
            continue
        text = (
            f"{limit} is less than a usual node holds, and a node with more {counted} is never emptied: {usual} or more"
        )
        if per_node:
            within = sum(pods_of_node <= limit for pods_of_node in per_node)
            text = (
                f"{limit} is enough for {within} of {count(len(per_node), 'node')} in use, as a usual node there holds "
                f"{usual} {counted}, and one with more than {limit} is never emptied: {usual} or more"
            )
        yield _warning(f"spec.limits.{name}", text)


def _loads(snapshot: Snapshot) -> Iterator[Counter[str]]:
    """Yield, for each node with pods that would have to leave, how many there are of each namespace."""
    pods: dict[str, Counter[str]] = {}
    for pod in snapshot.pods:
        if pod.spec.node_name and pod.occupies_node and not pod.is_terminating:
            pods.setdefault(pod.spec.node_name, Counter())[pod.metadata.namespace] += 1
    yield from pods.values()


def _check_goal(policy: DeschedulerPolicy, run: PolicyRun) -> Iterator[PolicyFinding]:
    """Ask the goal of `Defragmentation` and what capabilities add to it what will not work well."""
    plugin = run.planner.plugins.balance.plugin
    if not isinstance(plugin, Defragmentation):
        return
    is_repeated = run.schedule is not None
    for group, _ in plugin.args.groups:
        for warning in group.findings(plugin.args, policy, run.planner, is_repeated=is_repeated):
            yield _warning(f"spec.profiles[0].pluginConfig.{PLUGIN_NAME}.args.{warning.argument}", warning.message)


def _find_not_known(run: PolicyRun, snapshot: Snapshot | None) -> Iterator[PolicyFinding]:
    """Yield what the goal's arguments leave to objects of the cluster that are not known here."""
    plugin = run.planner.plugins.balance.plugin
    if isinstance(plugin, Defragmentation):
        for group, own in plugin.args.groups:
            for warning in group.not_known(own, snapshot):
                field = f"spec.profiles[0].pluginConfig.{PLUGIN_NAME}.args.{warning.argument}"
                yield PolicyFinding(Severity.NOTE, field, warning.message)


def _check_evictor(policy: DeschedulerPolicy, run: PolicyRun) -> Iterator[PolicyFinding]:
    """Look for filters that hardly any pod passes."""
    del policy
    for enabled in run.planner.plugins.filters:
        least = enabled.plugin.args.min_replicas if isinstance(enabled.plugin, DefaultEvictor) else 0
        if least > _MANY_REPLICAS:
            text = f"only pods whose controller has {least} replicas or more may be moved: in most clusters hardly any"
            yield _warning("spec.profiles[0].pluginConfig.DefaultEvictor.args.minReplicas", text)


_CHECKS: Final[tuple[Check, ...]] = (
    _check_pace,
    _check_mode,
    _check_goal,
    _check_evictor,
    _check_limits,
)


def _warning(field: str, message: str) -> PolicyFinding:
    return PolicyFinding(Severity.WARNING, field, message)
