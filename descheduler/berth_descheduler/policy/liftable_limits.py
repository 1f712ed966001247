"""The limits that may keep a plan from doing more, each with the change that lifts it to plan again without it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from msgspec.structs import replace as replace_struct

from berth_core import Deadline, LabelSelector, Objective, Snapshot, first_few, format_duration, format_selector
from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner import EvictableNamespaces, PlannerSettings, Strategy, Thresholds
from berth_descheduler.plugins import DefaultEvictor, DefaultEvictorArgs, Defragmentation, DefragmentationArgs

_FILLED: Final = 100
NAMES_SHOWN: Final = 5
_ANY_GRACE: Final = timedelta(days=36_500)
_MANY_DISRUPTIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a plan is made from."""

    snapshot: Snapshot
    settings: PlannerSettings


Lift: TypeAlias = Callable[[PlanInput], PlanInput]


@dataclass(frozen=True, slots=True)
class LiftableLimit:
    """Something that may keep a plan from doing more."""

    field: str
    condition: str
    """What would have to hold for more, such as "without maxMoves: 10"."""

    lift: Lift
    is_for_safety: bool = False
    """Whether it protects pods rather than bounds the plan: blamed last, and only where nothing is moved."""

    helps_only_alone: bool = False
    """Whether lifting it beside others may bring less: with more low nodes, for instance, there are fewer targets."""


def limits_of(plan_input: PlanInput) -> Iterator[LiftableLimit]:
    """Yield the limits that are set and that could bind at all, in the order in which they are named."""
    limits_of_goal = tuple(_limits_of_goal(plan_input))
    yield from _limits_of_moves(plan_input.settings)
    yield from (limit for limit, is_about_moves in limits_of_goal if is_about_moves)
    yield from _limits_of_targets(plan_input.settings)
    yield from (limit for limit, is_about_moves in limits_of_goal if not is_about_moves)
    yield from _limits_of_scope(plan_input.settings)
    yield from _limits_of_rules(plan_input)
    yield from _limits_for_safety(plan_input)


def _limits_of_moves(settings: PlannerSettings) -> Iterator[LiftableLimit]:
    numbers: dict[str, tuple[str, int | None]] = {
        "maxMoves": ("max_moves", settings.limits.max_moves),
        "maxMovesPerNode": ("max_moves_per_node", settings.limits.max_moves_per_node),
        "maxMovesPerNamespace": ("max_moves_per_namespace", settings.limits.max_moves_per_namespace),
    }
    for field, (limit_name, limit) in numbers.items():
        if limit is not None:
            yield _without(field, limit, _with_limits(**{limit_name: None}))


def _limits_of_targets(settings: PlannerSettings) -> Iterator[LiftableLimit]:
    if any(percentage < _FILLED for _, percentage in settings.protection.percentages):
        yield _without("protectionThresholds", settings.protection, _with_settings(protection=Thresholds(())))


def _limits_of_goal(plan_input: PlanInput) -> Iterator[tuple[LiftableLimit, bool]]:
    """Yield the limits that only the goal has, and whether each is about moves."""
    balance = plan_input.settings.plugins.balance.plugin
    if isinstance(balance, Defragmentation):
        for limit in balance.args.goal.limits(balance.args):
            lift = _asking_otherwise(limit.lift)
            yield (
                LiftableLimit(limit.field, limit.condition, lift, helps_only_alone=limit.helps_only_alone),
                limit.is_about_moves,
            )


def _limits_of_scope(settings: PlannerSettings) -> Iterator[LiftableLimit]:
    if settings.scope.evictable_namespaces != EvictableNamespaces():
        namespaces = settings.scope.evictable_namespaces
        yield _without("evictableNamespaces", namespaces, _with_scope(evictable_namespaces=EvictableNamespaces()))
    if settings.scope.node_selector is not None:
        yield _without("nodeSelector", format_selector(settings.scope.node_selector), _with_scope(node_selector=None))
    for evictor in _evictors(settings.plugins):
        for field, value, lifted in _scope_of_evictor(evictor.args):
            yield LiftableLimit(
                f"DefaultEvictor.{field}", f"without {field}: {value} of DefaultEvictor", _with_evictor(lifted)
            )


def _scope_of_evictor(args: DefaultEvictorArgs) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the arguments that limit the scope: name, value, and the fields to set to lift each."""
    selectors: dict[str, tuple[str, LabelSelector | None]] = {
        "nodeSelector": ("node_selector", args.node_selector),
        "labelSelector": ("label_selector", args.label_selector),
        "namespaceLabelSelector": ("namespace_label_selector", args.namespace_label_selector),
    }
    for field, (scope_name, selector) in selectors.items():
        if selector is not None:
            yield field, format_selector(selector), {scope_name: None}
    if args.namespaces != EvictableNamespaces():
        yield "namespaces", _written(args.namespaces), {"namespaces": EvictableNamespaces()}
    if args.priority_threshold is not None:
        threshold = args.priority_threshold
        yield "priorityThreshold", threshold.name or str(threshold.value), {"priority_threshold": None}
    if args.min_replicas > 1:
        yield "minReplicas", str(args.min_replicas), {"min_replicas": 0}
    if args.min_pod_age is not None:
        yield "minPodAge", args.age_in_words, {"min_pod_age": None}


def _limits_of_rules(plan_input: PlanInput) -> Iterator[LiftableLimit]:
    """Yield the settings behind rules that keep something of the cluster."""
    for rule in plan_input.settings.rules:
        for limit in rule.limits(plan_input.snapshot):
            yield LiftableLimit(limit.field, limit.condition, _without_rule(rule))


def _limits_for_safety(plan_input: PlanInput) -> Iterator[LiftableLimit]:
    settings, snapshot = plan_input.settings, plan_input.snapshot
    longest = settings.limits.max_grace.total_seconds()
    if any((pod.spec.termination_grace_period_seconds or 0) > longest for pod in snapshot.pods):
        grace = format_duration(settings.limits.max_grace)
        lift = _with_limits(max_grace=_ANY_GRACE)
        yield LiftableLimit("maxGracePeriod", f"without maxGracePeriod: {grace}", lift, is_for_safety=True)
    if snapshot.disruption_budgets:
        condition = "if every disruption budget allowed it"
        yield LiftableLimit("PodDisruptionBudget", condition, _allowing_every_disruption, is_for_safety=True)


def _without(field: str, value: object, lift: Lift) -> LiftableLimit:
    return LiftableLimit(field, f"without {field}: {_written(value)}", lift)


def _written(value: object) -> str:
    """Return a value as a policy has it."""
    if isinstance(value, Thresholds):
        return value.written()
    if not isinstance(value, EvictableNamespaces):
        return str(value)
    parts = (f"{field_name}: {_listed(part)}" for field_name, part in value.to_mapping().items())
    return f"{{{', '.join(parts)}}}"


def _listed(part: object) -> str:
    return f"[{first_few(part, NAMES_SHOWN)}]" if isinstance(part, list) else str(part)


def _with_settings(**lifted: Any) -> Lift:  # noqa: ANN401 - fields of the settings
    return lambda plan_input: replace(plan_input, settings=replace(plan_input.settings, **lifted))


def _with_limits(**lifted: Any) -> Lift:  # noqa: ANN401 - fields of the limits
    return lambda plan_input: _with_settings(limits=replace(plan_input.settings.limits, **lifted))(plan_input)


def _with_scope(**lifted: Any) -> Lift:  # noqa: ANN401 - fields of the scope
    return lambda plan_input: _with_settings(scope=replace(plan_input.settings.scope, **lifted))(plan_input)


def _without_rule(rule: Rule) -> Lift:
    return lambda plan_input: replace(plan_input, settings=plan_input.settings.without_rule(rule))


def _with_evictor(lifted: Mapping[str, Any]) -> Lift:
    """Return the change that lifts an argument in every use of the evictor, and in what the planner reads of it."""

    def relaxed(enabled: Enabled[Any]) -> Enabled[Any]:
        if not isinstance(enabled.plugin, DefaultEvictor):
            return enabled
        return replace(enabled, plugin=DefaultEvictor(replace(enabled.plugin.args, **lifted)))

    def lift(plan_input: PlanInput) -> PlanInput:
        plugins = plan_input.settings.plugins
        plugins = replace(
            plugins,
            filters=tuple(map(relaxed, plugins.filters)),
            pre_eviction_filters=tuple(map(relaxed, plugins.pre_eviction_filters)),
            node_selector=None if "node_selector" in lifted else plugins.node_selector,
        )
        return replace(plan_input, settings=replace(plan_input.settings, plugins=plugins))

    return lift


def _evictors(plugins: PluginSet) -> Iterator[DefaultEvictor]:
    yield from (enabled.plugin for enabled in plugins.filters if isinstance(enabled.plugin, DefaultEvictor))


@dataclass(frozen=True, slots=True)
class _AskingOtherwise:
    """The balance plugin `Defragmentation` with a strategy that is asked for what no argument can express."""

    args: DefragmentationArgs
    asked: Any

    def strategy(self, deadline: Deadline) -> Strategy:
        return self.args.goal.strategy(self.asked, deadline)

    @property
    def objective(self) -> Objective:
        return Defragmentation(self.args).objective


def _asking_otherwise(change: Callable[[Any], Any]) -> Lift:
    def lift(plan_input: PlanInput) -> PlanInput:
        plugins = plan_input.settings.plugins
        balance = plugins.balance.plugin
        if isinstance(balance, Defragmentation):
            args, asked_objective = balance.args, balance.args.goal.request(balance.args)
        elif isinstance(balance, _AskingOtherwise):
            args, asked_objective = balance.args, balance.asked
        else:
            return plan_input
        relaxed_balance = Enabled(plugins.balance.name, _AskingOtherwise(args, change(asked_objective)))
        return replace(
            plan_input, settings=replace(plan_input.settings, plugins=replace(plugins, balance=relaxed_balance))
        )

    return lift


def _allowing_every_disruption(plan_input: PlanInput) -> PlanInput:
    """Return the input with budgets that allow everything; pods stay covered by them, and several still exclude."""
    budgets = tuple(
        replace_struct(
            budget,
            status=replace_struct(
                budget.status,
                disruptions_allowed=_MANY_DISRUPTIONS,
                observed_generation=budget.metadata.generation,
            ),
        )
        for budget in plan_input.snapshot.disruption_budgets
    )
    return replace(plan_input, snapshot=replace(plan_input.snapshot, disruption_budgets=budgets))
