"""What holds a plan back: limits that bind, names that the cluster does not have, and objects that cannot be read.

A limit binds if the same rules do more without it. That is found by planning again without it, never guessed from the
reasons for which nodes stay, because those name what was met first. Limits of waves and of controllers are not asked:
they say how fast pods move, not which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from msgspec.structs import replace as replace_struct

from berth_core import (
    Deadline,
    LabelSelector,
    Objective,
    Restriction,
    RestrictionReason,
    Snapshot,
    describe_unreadable,
    first_few,
    format_duration,
    format_selector,
    is_over,
)
from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner import EvictableNamespaces, Plan, PlannerSettings, Strategy, Thresholds
from berth_descheduler.plugins import DefaultEvictor, DefaultEvictorArgs, Defragmentation, DefragmentationArgs, goal_of
from berth_descheduler.policy.unknown_names import find_unknown_names
from berth_descheduler.registry import on_demand

_FEW_PODS: Final = 2_000
"""In a larger cluster only a plan without moves is made again without its limits."""
_FILLED: Final = 100
_NAMED: Final = 5
_ANY_GRACE: Final = timedelta(days=36_500)
_MANY_DISRUPTIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a plan is made from."""

    snapshot: Snapshot
    settings: PlannerSettings


PlanAgain: TypeAlias = Callable[[PlanInput], Plan]
"""Plans as the plan in question was made."""

Lift: TypeAlias = Callable[[PlanInput], PlanInput]


@dataclass(frozen=True, slots=True)
class _Limit:
    """Something that may keep a plan from doing more."""

    field: str
    condition: str
    """What would have to hold for more, such as "without maxMoves: 10"."""

    lift: Lift
    is_for_safety: bool = False
    """Whether it protects pods rather than bounds the plan: blamed last, and only where nothing is moved."""

    helps_only_alone: bool = False
    """Whether lifting it beside others may bring less: with more low nodes, for instance, there are fewer targets."""


def find_restrictions(
    plan_input: PlanInput, plan: Plan, plan_again: PlanAgain, deadline: Deadline
) -> tuple[Restriction, ...]:
    """Return what holds back a plan that was made from `plan_input`.

    Plans again a few times while there is time, for a plan with moves only in a small cluster. If time runs out, the
    answer may be incomplete, but all of it is true.
    """
    unknown = (*_name_restrictions(plan_input, plan), *_unreadable_restrictions(plan_input.snapshot))
    if plan_input.settings.run.begun or on_demand(plan.objective) is not None:
        return unknown
    limits = tuple(_limits(plan_input))
    if plan.moves:
        limits = tuple(limit for limit in limits if not limit.is_for_safety) if _is_small(plan_input.snapshot) else ()
    return (*unknown, *_BindingLimits(plan_input, plan, plan_again, deadline).among(limits))


def _is_small(snapshot: Snapshot) -> bool:
    return len(snapshot.pods) <= _FEW_PODS


# --- limits that bind -------------------------------------------------------------------------------------------------


class _BindingLimits:
    """Finds which limits bind, by planning again without them."""

    def __init__(self, plan_input: PlanInput, plan: Plan, plan_again: PlanAgain, deadline: Deadline) -> None:
        self._plan_input = plan_input
        self._plan = plan
        self._plan_again = plan_again
        self._deadline = deadline

    def among(self, limits: Sequence[_Limit]) -> tuple[Restriction, ...]:
        """Return the limits that bind by themselves, or else the fewest that bind together."""
        together = [limit for limit in limits if not limit.helps_only_alone]
        bind_together = bool(together) and self._better_without(together) is not None
        limits_asked = (limit for limit in limits if bind_together or limit.helps_only_alone)
        single_limits = [
            (limit, better_plan) for limit in limits_asked if (better_plan := self._better_without([limit])) is not None
        ]
        if single_limits:
            return tuple(self._restriction([limit], plan_without_limit) for limit, plan_without_limit in single_limits)
        fewest_limits = self._fewest(together) if bind_together else []
        better_plan = self._better_without(fewest_limits) if fewest_limits else None
        return () if better_plan is None else (self._restriction(fewest_limits, better_plan),)

    def _fewest(self, limits: Sequence[_Limit]) -> list[_Limit]:
        """Return limits that bind together, each of which is needed for that."""
        needed_limits = list(limits)
        for limit in sorted(limits, key=lambda any_limit: not any_limit.is_for_safety):
            other_limits = [other for other in needed_limits if other is not limit]
            if other_limits and self._better_without(other_limits) is not None:
                needed_limits = other_limits
        return needed_limits

    def _better_without(self, limits: Iterable[_Limit]) -> Plan | None:
        """Return the plan without some limits; None if it brings no more, or there is no time to make it."""
        if is_over(self._deadline):
            return None
        lifted = self._plan_input
        for limit in limits:
            lifted = limit.lift(lifted)
        plan_again = self._plan_again(lifted)
        goal = goal_of(self._plan.objective)
        return plan_again if goal.worth(plan_again) > goal.worth(self._plan) else None

    def _restriction(self, limits: Sequence[_Limit], better: Plan) -> Restriction:
        conditions = " and ".join(limit.condition for limit in limits)
        together = "; one of them alone changes nothing" if len(limits) > 1 else ""
        return Restriction(
            reason=RestrictionReason.LIMIT_BINDS,
            fields=tuple(limit.field for limit in limits),
            message=f"{goal_of(better.objective).advantage(better, self._plan)} {conditions}{together}.",
        )


# --- the limits of a plan ---------------------------------------------------------------------------------------------


def _limits(plan_input: PlanInput) -> Iterator[_Limit]:
    """Yield the limits that are set and that could bind at all, in the order in which they are named."""
    limits_of_goal = tuple(_limits_of_goal(plan_input))
    yield from _limits_of_moves(plan_input.settings)
    yield from (limit for limit, is_about_moves in limits_of_goal if is_about_moves)
    yield from _limits_of_targets(plan_input.settings)
    yield from (limit for limit, is_about_moves in limits_of_goal if not is_about_moves)
    yield from _limits_of_scope(plan_input.settings)
    yield from _limits_of_rules(plan_input)
    yield from _limits_for_safety(plan_input)


def _limits_of_moves(settings: PlannerSettings) -> Iterator[_Limit]:
    numbers: dict[str, tuple[str, int | None]] = {
        "maxMoves": ("max_moves", settings.limits.max_moves),
        "maxMovesPerNode": ("max_moves_per_node", settings.limits.max_moves_per_node),
        "maxMovesPerNamespace": ("max_moves_per_namespace", settings.limits.max_moves_per_namespace),
    }
    for field, (limit_name, limit) in numbers.items():
        if limit is not None:
            yield _without(field, limit, _with_limits(**{limit_name: None}))


def _limits_of_targets(settings: PlannerSettings) -> Iterator[_Limit]:
    if any(percentage < _FILLED for _, percentage in settings.protection.percentages):
        yield _without("protectionThresholds", settings.protection, _with_settings(protection=Thresholds(())))


def _limits_of_goal(plan_input: PlanInput) -> Iterator[tuple[_Limit, bool]]:
    """Yield the limits that only the goal has, and whether each is about moves."""
    balance = plan_input.settings.plugins.balance.plugin
    if isinstance(balance, Defragmentation):
        for limit in balance.args.goal.limits(balance.args):
            lift = _asking_otherwise(limit.lift)
            yield (
                _Limit(limit.field, limit.condition, lift, helps_only_alone=limit.helps_only_alone),
                limit.is_about_moves,
            )


def _limits_of_scope(settings: PlannerSettings) -> Iterator[_Limit]:
    if settings.scope.evictable_namespaces != EvictableNamespaces():
        namespaces = settings.scope.evictable_namespaces
        yield _without("evictableNamespaces", namespaces, _with_scope(evictable_namespaces=EvictableNamespaces()))
    if settings.scope.node_selector is not None:
        yield _without("nodeSelector", format_selector(settings.scope.node_selector), _with_scope(node_selector=None))
    for evictor in _evictors(settings.plugins):
        for field, value, lifted in _scope_of_evictor(evictor.args):
            yield _Limit(
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


def _limits_of_rules(plan_input: PlanInput) -> Iterator[_Limit]:
    """Yield the settings behind rules that keep something of the cluster."""
    for rule in plan_input.settings.rules:
        for limit in rule.limits(plan_input.snapshot):
            yield _Limit(limit.field, limit.condition, _without_rule(rule))


def _limits_for_safety(plan_input: PlanInput) -> Iterator[_Limit]:
    settings, snapshot = plan_input.settings, plan_input.snapshot
    longest = settings.limits.max_grace.total_seconds()
    if any((pod.spec.termination_grace_period_seconds or 0) > longest for pod in snapshot.pods):
        grace = format_duration(settings.limits.max_grace)
        lift = _with_limits(max_grace=_ANY_GRACE)
        yield _Limit("maxGracePeriod", f"without maxGracePeriod: {grace}", lift, is_for_safety=True)
    if snapshot.disruption_budgets:
        condition = "if every disruption budget allowed it"
        yield _Limit("PodDisruptionBudget", condition, _allowing_every_disruption, is_for_safety=True)


def _without(field: str, value: object, lift: Lift) -> _Limit:
    return _Limit(field, f"without {field}: {_written(value)}", lift)


def _written(value: object) -> str:
    """Return a value as a policy has it."""
    if isinstance(value, Thresholds):
        return value.written()
    if not isinstance(value, EvictableNamespaces):
        return str(value)
    parts = (f"{field_name}: {_listed(part)}" for field_name, part in value.to_mapping().items())
    return f"{{{', '.join(parts)}}}"


def _listed(part: object) -> str:
    return f"[{first_few(part, _NAMED)}]" if isinstance(part, list) else str(part)


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


# --- names that the cluster does not have -----------------------------------------------------------------------------


def _name_restrictions(plan_input: PlanInput, plan: Plan) -> Iterator[Restriction]:
    for unknown_name in find_unknown_names(plan_input.snapshot, plan_input.settings):
        is_idle = unknown_name.selects_nothing and not plan.moves
        reason = RestrictionReason.SELECTS_NOTHING if is_idle else RestrictionReason.UNKNOWN_NAME
        yield Restriction(reason=reason, fields=(unknown_name.field,), message=unknown_name.message)


# --- objects that cannot be read --------------------------------------------------------------------------------------


def _unreadable_restrictions(snapshot: Snapshot) -> Iterator[Restriction]:
    """Yield one restriction that names what cannot be read, even if nothing depends on it."""
    texts = sorted(map(describe_unreadable, snapshot.all_unreadable()))
    if texts:
        more_text = (f"{len(texts) - _NAMED} more objects cannot be read",) if len(texts) > _NAMED else ()
        message = (
            f"{'; '.join((*texts[:_NAMED], *more_text))}. What depends on {'it' if len(texts) == 1 else 'one'} stays."
        )
        yield Restriction(reason=RestrictionReason.UNREADABLE_OBJECT, message=message)
