"""What holds a plan back: limits that bind, names that the cluster does not have, and objects that cannot be read.

A limit binds if the same rules do more without it. That is found by planning again without it, never guessed from the
reasons for which nodes stay, because those name what was met first. Limits of waves and of controllers are not asked:
they say how fast pods move, not which.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from berth_core import Deadline, Restriction, RestrictionReason, Snapshot, describe_unreadable, is_over
from berth_descheduler.planner import Plan
from berth_descheduler.plugins import goal_of
from berth_descheduler.policy.liftable_limits import NAMES_SHOWN, LiftableLimit, PlanInput, limits_of
from berth_descheduler.policy.unknown_names import find_unknown_names
from berth_descheduler.registry import on_demand

_FEW_PODS: Final = 2_000
"""In a larger cluster only a plan without moves is made again without its limits."""


PlanAgain: TypeAlias = Callable[[PlanInput], Plan]
"""Plans as the plan in question was made."""


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
    limits = tuple(limits_of(plan_input))
    if plan.moves:
        limits = tuple(limit for limit in limits if not limit.is_for_safety) if _is_small(plan_input.snapshot) else ()
    return (*unknown, *_BindingLimits(plan_input, plan, plan_again, deadline).among(limits))


def _is_small(snapshot: Snapshot) -> bool:
    return len(snapshot.pods) <= _FEW_PODS


class _BindingLimits:
    """Finds which limits bind, by planning again without them."""

    def __init__(self, plan_input: PlanInput, plan: Plan, plan_again: PlanAgain, deadline: Deadline) -> None:
        self._plan_input = plan_input
        self._plan = plan
        self._plan_again = plan_again
        self._deadline = deadline

    def among(self, limits: Sequence[LiftableLimit]) -> tuple[Restriction, ...]:
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

    def _fewest(self, limits: Sequence[LiftableLimit]) -> list[LiftableLimit]:
        """Return limits that bind together, each of which is needed for that."""
        # The deletion filter for irreducible infeasible subsets of constraints (Chinneck and Dravnieks 1991): in one
        # pass a limit goes for good if the others still bind without it. Limits for safety are tried first, so they
        # are blamed only where the plan is not explained without them.
        needed_limits = list(limits)
        for limit in sorted(limits, key=lambda any_limit: not any_limit.is_for_safety):
            other_limits = [other for other in needed_limits if other is not limit]
            if other_limits and self._better_without(other_limits) is not None:
                needed_limits = other_limits
        return needed_limits

    def _better_without(self, limits: Iterable[LiftableLimit]) -> Plan | None:
        """Return the plan without some limits; None if it brings no more, or there is no time to make it."""
        if is_over(self._deadline):
            return None
        lifted = self._plan_input
        for limit in limits:
            lifted = limit.lift(lifted)
        plan_again = self._plan_again(lifted)
        goal = goal_of(self._plan.objective)
        return plan_again if goal.worth(plan_again) > goal.worth(self._plan) else None

    def _restriction(self, limits: Sequence[LiftableLimit], better: Plan) -> Restriction:
        conditions = " and ".join(limit.condition for limit in limits)
        together = "; one of them alone changes nothing" if len(limits) > 1 else ""
        return Restriction(
            reason=RestrictionReason.LIMIT_BINDS,
            fields=tuple(limit.field for limit in limits),
            message=f"{goal_of(better.objective).advantage(better, self._plan)} {conditions}{together}.",
        )


def _name_restrictions(plan_input: PlanInput, plan: Plan) -> Iterator[Restriction]:
    for unknown_name in find_unknown_names(plan_input.snapshot, plan_input.settings):
        is_idle = unknown_name.selects_nothing and not plan.moves
        reason = RestrictionReason.SELECTS_NOTHING if is_idle else RestrictionReason.UNKNOWN_NAME
        yield Restriction(reason=reason, fields=(unknown_name.field,), message=unknown_name.message)


def _unreadable_restrictions(snapshot: Snapshot) -> Iterator[Restriction]:
    """Yield one restriction that names what cannot be read, even if nothing depends on it."""
    texts = sorted(map(describe_unreadable, snapshot.all_unreadable()))
    if texts:
        more_text = (f"{len(texts) - NAMES_SHOWN} more objects cannot be read",) if len(texts) > NAMES_SHOWN else ()
        pronoun = "it" if len(texts) == 1 else "one"
        message = f"{'; '.join((*texts[:NAMES_SHOWN], *more_text))}. What depends on {pronoun} stays."
        yield Restriction(reason=RestrictionReason.UNREADABLE_OBJECT, message=message)
