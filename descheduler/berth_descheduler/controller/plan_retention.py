"""Which finished plans are deleted: those beyond a policy's history limit, and those of no policy in time."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from berth_core import MigrationPlan, read_timestamp
from berth_descheduler.controller.decisions import ParsedPolicy, is_open
from berth_descheduler.policy import PolicyError


def plans_over_history_limit(
    known: Mapping[str, ParsedPolicy], plans: Sequence[MigrationPlan], now: datetime
) -> tuple[MigrationPlan, ...]:
    """Return the oldest finished plans beyond what each policy keeps.

    Plans from which a cool-down of pods still counts are kept.
    """
    surplus: list[MigrationPlan] = []
    for policy_name, parsed in known.items():
        if isinstance(parsed.run, PolicyError):
            continue
        cool_down = parsed.run.cycle.pod_cool_down
        ended_plans = [plan for plan in plans if plan.spec.policy == policy_name and _may_go(plan)]
        ended_plans.sort(key=_age, reverse=True)
        surplus += [plan for plan in ended_plans[parsed.run.plans_kept :] if _ended_before(plan, now - cool_down)]
    return tuple(surplus)


def expired_plans(
    known: Mapping[str, ParsedPolicy], plans: Iterable[MigrationPlan], now: datetime, retention: timedelta | None
) -> tuple[MigrationPlan, ...]:
    """Return the plans without a policy that ended `retention` ago or earlier; none if that is None.

    They were made by hand or for a policy that is gone. They are kept for at least as long as a cool-down of pods may
    count from them.
    """
    if retention is None:
        return ()
    cool_downs = (
        parsed.run.cycle.pod_cool_down for parsed in known.values() if not isinstance(parsed.run, PolicyError)
    )
    oldest_kept = now - max([retention, *cool_downs])
    ended_plans = (plan for plan in plans if plan.spec.policy not in known and _may_go(plan))
    return tuple(plan for plan in ended_plans if _ended_before(plan, oldest_kept))


def _may_go(plan: MigrationPlan) -> bool:
    """Return whether a plan has ended; one whose deletion waits for a finalizer is not deleted again."""
    return not is_open(plan) and plan.metadata.deletion_timestamp is None


def _age(plan: MigrationPlan) -> tuple[str, int]:
    """Return a key that is larger for later plans; within a second, for the plan that was written last."""
    # Creation times have whole seconds, and a run with several plans makes them within one.
    version = plan.metadata.resource_version
    return plan.metadata.creation_timestamp or "", int(version) if version.isdigit() else 0


def _ended_before(plan: MigrationPlan, time: datetime) -> bool:
    ended_at = read_timestamp(plan.status.completion_time) or read_timestamp(plan.metadata.creation_timestamp)
    return ended_at is None or ended_at <= time
