"""Decides what the service does next.

The decisions are pure functions of the observed policies and plans. `runner` and `status_controller` act on them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from berth_core import (
    SCHEDULED,
    DeschedulerPolicy,
    InputError,
    MigrationPlan,
    PlanPhase,
    RunMode,
    fails_unread,
    format_timestamp,
    is_scheduled_plan,
    read_timestamp,
)
from berth_descheduler.migration.plans.binding import CAME_BACK
from berth_descheduler.policy import (
    IntervalSchedule,
    PolicyError,
    PolicyRun,
    Schedule,
    Timing,
    asked_by_people,
    read_timing,
)

_TRUE: Final = "True"


@dataclass(frozen=True, slots=True)
class ParsedPolicy:
    """A policy with its run, or with what is wrong with it."""

    policy: DeschedulerPolicy
    run: PolicyRun | PolicyError

    @property
    def name(self) -> str:
        """Return the policy's name."""
        return self.policy.metadata.name

    @property
    def is_being_deleted(self) -> bool:
        """Return whether the policy is to go, and stays only because of a finalizer: it begins nothing any more."""
        return self.policy.metadata.deletion_timestamp is not None

    def enables(self, balance: str) -> bool | None:
        """Return whether the policy has this balance plugin; None for one that cannot be run."""
        return None if isinstance(self.run, PolicyError) else self.run.planner.plugins.balance.name == balance

    @property
    def schedule(self) -> Schedule | None:
        """Return the schedule by which it runs now, None if it does not run by itself."""
        if isinstance(self.run, PolicyError) or self.policy.spec.suspend:
            return None
        return self.run.schedule


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """Execute a plan of the cluster, approved or begun and interrupted."""

    plan: MigrationPlan


@dataclass(frozen=True, slots=True)
class ComputePlan:
    """Fill a requested plan."""

    plan: MigrationPlan


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """Run a policy because its trigger says so."""

    policy: str
    scheduled: datetime


Task: TypeAlias = ResumePlan | ComputePlan | RunPolicy


@dataclass(frozen=True, slots=True)
class PlanTermination:
    """A plan that ends without being begun, how and why."""

    plan: MigrationPlan
    message: str
    phase: PlanPhase = PlanPhase.ABORTED


def choose_task(
    known: Mapping[str, ParsedPolicy], plans: Iterable[MigrationPlan], now: datetime, waiting: Collection[str] = ()
) -> Task | None:
    """Return the next task, None if there is none.

    Interrupted plans come first, then approved plans, requested plans and due policies, each oldest first. `waiting`
    are the uids of plans and policies that failed recently: they come later, and nothing waits for them.
    """
    ordered = sorted(plans, key=lambda plan: (plan.metadata.creation_timestamp or "", plan.metadata.name))
    plans_not_waiting = [plan for plan in ordered if plan.metadata.uid not in waiting]
    running_plans = [plan for plan in plans_not_waiting if may_go_on(plan)]
    approved_plans = [plan for plan in plans_not_waiting if may_begin(plan, now)]
    requested_plans = [plan for plan in plans_not_waiting if may_be_filled(plan, now)]
    # A plan that was begun has taints on nodes and may have pods on their way; approved ones come next, as their moves
    # were found on a cluster that changes while they wait.
    if running_plans or approved_plans:
        return ResumePlan([*running_plans, *approved_plans][0])
    if requested_plans:
        return ComputePlan(requested_plans[0])
    policies_not_waiting = {
        policy_name: parsed for policy_name, parsed in known.items() if parsed.policy.metadata.uid not in waiting
    }
    due = [
        (timing.due, name)
        for name, parsed in policies_not_waiting.items()
        if (timing := read_due(parsed, ordered, now)) and timing.due
    ]
    return RunPolicy(policy=min(due)[1], scheduled=min(due)[0]) if due else None


def may_go_on(plan: MigrationPlan) -> bool:
    """Return whether a plan was begun, and still is the same object."""
    return plan.phase is PlanPhase.RUNNING and not plan.came_back


def may_begin(plan: MigrationPlan, now: datetime) -> bool:
    """Return whether a plan of the service waits only for its turn."""
    is_filled = plan.phase in {PlanPhase.PROPOSED, PlanPhase.APPROVED} and _is_current(plan, now)
    return is_filled and plan.spec.mode is not None and plan.spec.approved and not plan.is_aborted


def may_be_filled(plan: MigrationPlan, now: datetime) -> bool:
    """Return whether a requested plan still needs its moves."""
    return plan.phase is PlanPhase.REQUESTED and _is_current(plan, now) and not plan.is_aborted


def _is_current(plan: MigrationPlan, now: datetime) -> bool:
    """Return whether a plan can be carried out, is the one that was published, and has not waited for too long."""
    return plan.fault is None and not plan.came_back and not _is_late(plan, now)


def _is_late(plan: MigrationPlan, now: datetime) -> bool:
    """Return whether a plan does not begin any more; one that is only shown does not begin anyway."""
    limit = read_timestamp(plan.spec.approve_before)
    is_only_shown = plan.spec.mode is RunMode.PLAN and plan.phase is not PlanPhase.REQUESTED
    return limit is not None and limit <= now and not is_only_shown


def read_due(known: ParsedPolicy, plans: Iterable[MigrationPlan], now: datetime) -> Timing | None:
    """Return when a policy runs, None if it does not run by itself; nothing is due while a plan of it is open."""
    schedule = known.schedule
    if schedule is None or known.is_being_deleted:
        return None
    seconds = known.policy.spec.starting_deadline_seconds
    deadline = None if seconds is None else timedelta(seconds=seconds)
    timing = read_timing(schedule, schedule_base(known.policy, schedule, now), now, deadline)
    plans_of_policy = [plan for plan in plans if plan.spec.policy == known.name]
    # Like a CronJob with `concurrencyPolicy: Forbid`: a second plan would be made for a cluster that the first is about
    # to change.
    if timing.due is not None and any(is_open(plan) for plan in plans_of_policy):
        return Timing(None, timing.next_run)
    return timing


def is_open(plan: MigrationPlan) -> bool:
    """Return whether a plan is not over."""
    if plan.phase is PlanPhase.PROPOSED:
        return plan.spec.mode is not RunMode.PLAN
    return not plan.phase.terminal


def unreadable_plans(plans: Iterable[MigrationPlan]) -> tuple[MigrationPlan, ...]:
    """Return the unreadable plans whose status does not say so yet."""
    return tuple(plan for plan in plans if fails_unread(plan.metadata, plan.status.phase))


def was_made(policy: DeschedulerPolicy, scheduled: datetime, plans: Iterable[MigrationPlan]) -> bool:
    """Return whether a plan exists for a scheduled time whose run could not note that on the policy."""
    time = format_timestamp(scheduled)
    return any(is_scheduled_plan(plan.metadata.name, policy.metadata.uid, time) for plan in plans)


def schedule_base(policy: DeschedulerPolicy, schedule: Schedule, now: datetime) -> datetime:
    """Return the time from which missed runs count.

    Times before the present schedule was noted on the policy do not count: it did not hold then. An interval counts
    from the last run, and the first one is due when the policy is made.
    """
    last_scheduled, created = policy.status.last_scheduled_time, policy.metadata.creation_timestamp
    ran_at = read_timestamp(last_scheduled)
    created_at = read_timestamp(created) or now
    if isinstance(schedule, IntervalSchedule):
        return ran_at or created_at - schedule.interval
    condition = policy.condition(SCHEDULED)
    if condition is None:
        return created_at
    scheduled_since = read_timestamp(condition.last_transition_time)
    # The schedule has just been changed: a run that only the new one would have had an hour ago is not made up for.
    if condition.status != _TRUE or condition.message != schedule.text or scheduled_since is None:
        return now
    return scheduled_since if ran_at is None else max(scheduled_since, ran_at)


def plans_to_end(
    known: Mapping[str, ParsedPolicy], plans: Iterable[MigrationPlan], now: datetime, *, all_known: bool = True
) -> tuple[PlanTermination, ...]:
    """Return the plans of policies to end without being begun.

    Unless `all_known`, there may be more policies than these, and no plan ends for want of one.

    A plan that can never be carried out becomes Failed; one that was aborted, came back from a backup, did not begin in
    time, or is of no valid policy, becomes Aborted. A plan that came back ends even if it was begun.
    """
    plans = tuple(plans)
    begun_elsewhere = (plan for plan in plans if plan.phase is PlanPhase.RUNNING and plan.came_back)
    unbegun_plans = [plan for plan in plans if plan.spec.mode is not None and is_unbegun(plan)]
    faults = ((plan, plan.fault) for plan in unbegun_plans)
    faulty_plans = (
        PlanTermination(plan, f"Failed: {fault}", PlanPhase.FAILED) for plan, fault in faults if fault is not None
    )
    endings = (
        (plan, _why_ended(known, plan, now, all_known=all_known)) for plan in unbegun_plans if plan.fault is None
    )
    return (
        *faulty_plans,
        *(PlanTermination(plan, CAME_BACK) for plan in begun_elsewhere),
        *(PlanTermination(plan, message) for plan, message in endings if message),
    )


def is_unbegun(plan: MigrationPlan) -> bool:
    """Return whether a plan is neither over nor under way."""
    return not plan.phase.terminal and plan.phase is not PlanPhase.RUNNING


def _why_ended(known: Mapping[str, ParsedPolicy], plan: MigrationPlan, now: datetime, *, all_known: bool) -> str:
    """Return why an unbegun plan has to end, "" if it need not."""
    if plan.is_aborted:
        return "aborted: an abort was requested before it began"
    if plan.came_back:
        return CAME_BACK
    if _is_late(plan, now):
        is_unapproved = plan.phase is PlanPhase.PROPOSED and not plan.spec.approved
        return "aborted: it was not approved in time" if is_unapproved else "aborted: it did not begin in time"
    if not is_open(plan) or (plan.spec.policy and plan.spec.policy not in known and not all_known):
        return ""
    return _why_not_run(known.get(plan.spec.policy), plan)


def _why_not_run(known: ParsedPolicy | None, plan: MigrationPlan) -> str:
    """Return why nothing can come of a plan of a policy or of one that people asked for, "" if something can."""
    policy_name = plan.spec.policy
    try:
        if asked_by_people(plan) is not None:
            return ""
    except InputError as error:
        return f"aborted: {error}"
    if known is None:
        return f"aborted: there is no policy {policy_name}"
    if known.is_being_deleted:
        return f"aborted: the policy {policy_name} is being deleted"
    return f"aborted: the policy {policy_name} cannot be run: {known.run}" if isinstance(known.run, PolicyError) else ""


def pause_until(
    known: Collection[ParsedPolicy],
    plans: Sequence[MigrationPlan],
    now: datetime,
    longest: float,
    also: Iterable[datetime] = (),
) -> float:
    """Return the seconds until the next time that matters, `also` among them, at most `longest`."""
    times = [timing.next_run for parsed in known if (timing := read_due(parsed, plans, now)) is not None]
    limits = (read_timestamp(plan.spec.approve_before) for plan in plans if is_unbegun(plan))
    times += [limit for limit in limits if limit is not None]
    ahead = [(time - now) / timedelta(seconds=1) for time in (*times, *also) if time > now]
    return min([longest, *ahead])
