"""Runs the service's tasks one at a time, each on fresh state, and reports each on its policy."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import structlog

from berth_core import (
    BerthError,
    DeschedulerPolicy,
    MigrationPlan,
    Node,
    ObjectReference,
    PlanPhase,
    format_timestamp,
    scheduled_plan_name,
)
from berth_descheduler import telemetry
from berth_descheduler.controller.decisions import (
    ComputePlan,
    ParsedPolicy,
    ResumePlan,
    RunPolicy,
    Task,
    choose_task,
    may_be_filled,
    may_begin,
    may_go_on,
    pause_until,
    read_due,
    was_made,
)
from berth_descheduler.controller.failure_backoff import FailureBackoff
from berth_descheduler.controller.pod_whereabouts import WatchedWhereabouts
from berth_descheduler.controller.policy_status import FAILED, build_failure_patch, build_outcome_patch
from berth_descheduler.controller.store import PolicyStore, ServiceContext
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.event_reasons import PolicyEventReason
from berth_descheduler.migration.nodes.cooling_marks import sweep_cooling_nodes
from berth_descheduler.migration.nodes.freed import settle_freed_nodes
from berth_descheduler.migration.nodes.freed_marks import FreedMark, sweep_freed_nodes
from berth_descheduler.migration.nodes.plan_taints import left_over_nodes
from berth_descheduler.migration.plans.abort import abort_plan
from berth_descheduler.migration.plans.publishing import end_plan
from berth_descheduler.migration.plans.recovery import recover_plans
from berth_descheduler.observers import join_observers
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.policy import PolicyError, PolicyRun, asked_by_people, choose_plan_settings, requested_settings
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_descheduler.run_watch import RunWatch
from berth_descheduler.settings import CycleSettings, FreedNodes
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, NODES, LeaseHolder, NotFoundError, released_pods
from berth_service.memory import release_memory, return_free_memory

_LOG = structlog.get_logger(__name__)
_LONGEST_PAUSE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 2.0
_SWEEP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class AssignedRun:
    """One run with everything it needs."""

    settings: CycleSettings
    planner: PlannerSettings
    perform: Callable[[Cycle], Outcome]
    policy: DeschedulerPolicy | None = None
    scheduled: datetime | None = None
    plan: MigrationPlan | None = None
    """The plan to resume or to fill, None where the run makes one."""

    @property
    def uid(self) -> str:
        """Return the uid under which its failures are counted: the plan's, or else the policy's."""
        if self.plan is not None:
            return self.plan.metadata.uid
        return self.policy.metadata.uid if self.policy else ""


class Runner:
    """Executes one task after the other."""

    def __init__(
        self,
        context: ServiceContext,
        store: PolicyStore,
        metrics: PolicyMetrics,
        lease: LeaseHolder,
        wake_up: threading.Event,
        run_watch: RunWatch,
    ) -> None:
        self._context = context
        self._store = store
        self._metrics = metrics
        self._lease = lease
        self._wake_up = wake_up
        self._run_watch = run_watch
        self._backoff = FailureBackoff()
        self._has_worked = False
        self._swept_at: float | None = None
        self._whereabouts = WatchedWhereabouts(context.client)
        context.picture.pass_on_pods = self._whereabouts.take_over
        self._policies: frozenset[str] = frozenset()

    def work_until(self, over: Callable[[], bool], stop: threading.Event) -> None:
        """Work until `over`; reports and retries what fails."""
        while not over():
            # Before the pass looks: what changes from here on ends the wait after it.
            self._wake_up.clear()
            pause = _AGAIN_SECONDS
            try:
                pause = self.pass_once(stop)
            except BerthError as error:
                _LOG.error(telemetry.WORK_FAILED, **{telemetry.KEY_ERROR: str(error)})
            except Exception:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.exception(telemetry.WORK_FAILED)
            if pause and not over():
                self._wake_up.wait(pause)
        self._whereabouts.stop()

    def pass_once(self, stop: threading.Event) -> float:
        """Execute the next task, if any, and return the seconds until there may be another."""
        self._has_worked = False
        try:
            return self._pass_once(stop)
        finally:
            if self._has_worked:
                self._context.client.close()  # a run leaves some thirty idle connections, each with its buffers
                release_memory()  # after the last name for what the task has read is gone

    def _pass_once(self, stop: threading.Event) -> float:
        self._store.look_at_own()
        self._sweep_when_due(frozenset(self._store.known()))
        now = self._context.clock.now()
        policies, plans, retry_times = self._store.known(), self._store.plans(), self._backoff.waiting(now)
        work = choose_task(policies, plans, now, retry_times)
        if work is None:
            return pause_until(policies.values(), plans, now, _LONGEST_PAUSE_SECONDS, also=retry_times.values())
        try:
            assignment = self._assign(work)
        except Exception as error:
            # A task that cannot even be read must not keep the others waiting.
            self._backoff.note(_uid_of(work, policies), error, now)
            raise
        if assignment is None:
            # The store is behind the cluster: the change that made the task obsolete is on its way.
            stop.wait(_AGAIN_SECONDS / 10)
            return 0.0
        self._has_worked = True
        outcome = self._perform(assignment, stop)
        self._metrics.proposed_plan = None
        return _AGAIN_SECONDS if outcome is None or outcome.verdict is Verdict.LEASE_HELD else 0.0

    def _assign(self, work: Task) -> AssignedRun | None:
        """Return the run on fresh state, None for an obsolete task."""
        try:
            match work:
                case ResumePlan(plan=plan):
                    # Read again, as the store may be behind: the plan may have been approved, aborted or carried out
                    # since.
                    return self._assign_plan(self._read_plan(plan))
                case ComputePlan(plan=plan):
                    return self._assign_request(self._read_plan(plan))
                case RunPolicy(policy=name):
                    return self._assign_policy(self._read_policy(name))
        except NotFoundError:
            return None

    def _assign_plan(self, plan: MigrationPlan) -> AssignedRun | None:
        """Return the run that resumes a plan, by its policy's settings or the program's."""
        if not may_go_on(plan) and not may_begin(plan, self._context.clock.now()):
            return None
        parsed_policy = self._policy_of(plan)
        if parsed_policy is not None and parsed_policy.is_being_deleted and plan.phase is not PlanPhase.RUNNING:
            return None
        run = None if parsed_policy is None else parsed_policy.run
        if not isinstance(run, PolicyRun) and plan.phase is not PlanPhase.RUNNING and asked_by_people(plan) is None:
            return None
        plan_settings = choose_plan_settings(plan, run, self._context.defaults, self._context.clock.now())
        return AssignedRun(
            settings=plan_settings.settings,
            planner=plan_settings.planner,
            perform=lambda cycle: cycle.resume(plan, plan_settings.blocked_reason),
            policy=None if parsed_policy is None else parsed_policy.policy,
            plan=plan,
        )

    def _assign_request(self, plan: MigrationPlan) -> AssignedRun | None:
        parsed_policy = self._policy_of(plan)
        if not may_be_filled(plan, self._context.clock.now()) or plan.spec.mode is None:
            return None
        if (asked := asked_by_people(plan)) is not None:
            plan_settings = requested_settings(plan, asked, self._context.defaults, self._context.clock.now())
            return AssignedRun(
                plan_settings.settings, plan_settings.planner, perform=lambda cycle: cycle.run(plan), plan=plan
            )
        if parsed_policy is None or parsed_policy.is_being_deleted or isinstance(parsed_policy.run, PolicyError):
            return None
        return AssignedRun(
            settings=parsed_policy.run.settings(plan.spec.mode, plan.spec.trigger),
            planner=parsed_policy.run.planner_at(self._context.clock.now()),
            perform=lambda cycle: cycle.run(plan),
            policy=parsed_policy.policy,
            plan=plan,
        )

    def _assign_policy(self, policy: DeschedulerPolicy) -> AssignedRun | None:
        parsed_policy, now, plans = self._context.read(policy), self._context.clock.now(), self._store.plans()
        timing = read_due(parsed_policy, plans, now)
        if (
            timing is None
            or timing.due is None
            or isinstance(parsed_policy.run, PolicyError)
            or parsed_policy.schedule is None
        ):
            return None
        # The run of that time has left its plan, and only the status write was lost: it is not made twice.
        if was_made(policy, timing.due, plans):
            self._write(policy, {"status": {"lastScheduledTime": format_timestamp(timing.due)}})
            return None
        settings = parsed_policy.run.settings(parsed_policy.run.mode, parsed_policy.schedule.reason.value)
        started, scheduled = now.strftime("%Y%m%d-%H%M%S"), format_timestamp(timing.due)
        return AssignedRun(
            # The name follows from policy and scheduled time, as a CronJob's Jobs are named: a process that is killed
            # before it can note the run finds the plan and makes no second one.
            settings=replace(settings, plan_name=scheduled_plan_name(started, policy.metadata.uid, scheduled)),
            planner=parsed_policy.run.planner_at(now),
            perform=lambda cycle: cycle.run(),
            policy=policy,
            scheduled=timing.due,
        )

    def _read_plan(self, plan: MigrationPlan) -> MigrationPlan:
        return self._context.client.get(MIGRATION_PLANS, plan.metadata.name, type=MigrationPlan)

    def _read_policy(self, name: str) -> DeschedulerPolicy:
        known = self._store.known().get(name)
        own = None if known is None else self._store.own.of_uid(known.policy.metadata.uid)
        if own is not None:
            return own.policy
        return self._context.client.get(DESCHEDULER_POLICIES, name, type=DeschedulerPolicy)

    def _policy_of(self, plan: MigrationPlan) -> ParsedPolicy | None:
        if not plan.spec.policy:
            return None
        try:
            return self._context.read(self._read_policy(plan.spec.policy))
        except NotFoundError:
            return None

    def _perform(self, assignment: AssignedRun, stop: threading.Event) -> Outcome | None:
        """Run and report the outcome; None where the run failed or where another run holds the Lease."""
        begun_at, settings = self._context.clock.now(), assignment.settings
        if not self._lease.acquire(0):  # a run by hand, or of a former leader; the Lease shows when it is over
            return None
        keys = {telemetry.KEY_POLICY: settings.policy, telemetry.KEY_TRIGGER: settings.trigger}
        _LOG.info(telemetry.POLICY_RUN, **keys)
        name = assignment.plan.metadata.name if assignment.plan else settings.plan_name
        try:
            with (
                self._store.in_progress(name),
                self._metrics.running(settings.policy),
                self._run_watch.running() as clock,
            ):
                context = CycleContext(
                    self._context.client,
                    clock,
                    join_observers(self._metrics, self._context.watchers),
                    stop,
                    # Plans that other runs left are tasks of their own, by their own policies: this one continues none.
                    settings_of_plan=lambda _: None,
                    picture=self._context.picture,
                )
                outcome = assignment.perform(Cycle(context, settings, assignment.planner, self._lease))
        except BerthError as error:
            _LOG.error(telemetry.WORK_FAILED, **keys, **{telemetry.KEY_ERROR: str(error)})
            self._record_failure(assignment, begun_at, error, str(error))
            return None
        except Exception as error:  # noqa: BLE001 - a mistake with one policy must not end the service of the others
            _LOG.exception(telemetry.WORK_FAILED, **keys)
            self._record_failure(assignment, begun_at, error, f"{type(error).__name__}: {error}")
            return None
        finally:
            self._lease.release()
        self._backoff.forget(assignment.uid)
        if outcome.verdict is not Verdict.LEASE_HELD and not _is_unbegun(outcome):
            self._report_outcome(assignment, begun_at, outcome)
        return outcome

    def _report_outcome(self, assignment: AssignedRun, begun: datetime, outcome: Outcome) -> None:
        self._metrics.run_ended(assignment.settings.policy, outcome.verdict.value)
        if assignment.policy is None:
            return
        proposed_plan = self._metrics.proposed_plan
        patch = build_outcome_patch(outcome, begun=begun, scheduled=assignment.scheduled, proposed_plan=proposed_plan)
        self._write(assignment.policy, patch)
        about = self._stands_for(assignment.policy)
        if outcome.verdict is Verdict.NOTHING_TO_MOVE and about is not assignment.policy:
            return  # whoever reads a zone's events is told what has left it, not each look
        self._context.record_event(about, PolicyEventReason.RUN_ENDED, outcome.sentence, bad=not outcome.clean)

    def _record_failure(self, assignment: AssignedRun, begun: datetime, error: Exception, message: str) -> None:
        """Back off and report the failure; a plan that would fail again in the same way is failed."""
        final = self._backoff.note(assignment.uid, error, self._context.clock.now())
        if final and assignment.plan is not None:
            plan = self._read_plan(assignment.plan)
            if not plan.phase.terminal:
                text = f"Failed: it cannot be carried out: {message}"
                abort_plan(self._context.client, plan, self._context.clock, text, PlanPhase.FAILED)
        self._report_failure(assignment, begun, message)

    def _report_failure(self, assignment: AssignedRun, begun: datetime, message: str) -> None:
        """Report on the policy that a run failed; the next pass resumes a plan that has begun."""
        self._metrics.run_ended(assignment.settings.policy, FAILED)
        if assignment.policy is not None:
            patch = build_failure_patch(message, begun=begun, scheduled=assignment.scheduled)
            self._write(assignment.policy, patch)
            about = self._stands_for(assignment.policy)
            self._context.record_event(about, PolicyEventReason.RUN_FAILED, message, bad=True)
        plan = assignment.plan
        if plan is not None and plan.phase is PlanPhase.REQUESTED:
            now = self._read_plan(plan)
            if now.phase is PlanPhase.REQUESTED:
                end_plan(self._context.client, self._context.clock, now, PlanPhase.FAILED, message)

    def _write(self, policy: DeschedulerPolicy, patch: dict[str, Any]) -> None:
        if self._store.own.of_uid(policy.metadata.uid) is not None:
            self._store.own.note(policy, patch)
            return
        with suppress(NotFoundError):
            self._context.client.merge_patch(DESCHEDULER_POLICIES, policy.metadata.name, patch, subresource="status")

    def _stands_for(self, policy: DeschedulerPolicy) -> DeschedulerPolicy | ObjectReference:
        """Return the object on which events of a policy are recorded."""
        own = self._store.own.of_uid(policy.metadata.uid)
        return policy if own is None else own.regarding

    def _sweep_when_due(self, policies: frozenset[str]) -> None:
        """Sweep at an interval, and when a policy is gone; the next sweep retries a failed one."""
        now = self._context.clock.monotonic()
        is_gone = not self._policies <= policies  # nodes lose its marks at once: an uninstallation waits for that
        self._policies = policies
        if self._swept_at is not None and now - self._swept_at < _SWEEP_SECONDS and not is_gone:
            return
        try:
            self._sweep()
        except BerthError as error:
            _LOG.error(telemetry.SWEEP_FAILED, **{telemetry.KEY_ERROR: str(error)})
        return_free_memory()  # it has read all nodes
        self._swept_at = now

    def _sweep(self) -> None:
        """Remove taints and marks that no run needs any more, and give released pods back."""
        running_plans = {plan.metadata.name for plan in self._store.plans() if plan.phase is PlanPhase.RUNNING}
        nodes = self._context.client.list(NODES, type=Node).items
        stray_nodes = left_over_nodes(nodes, running_plans)
        released = any(released_pods(self._context.client, running_plans, self._context.clock.now()))
        # With the Lease of runs: a run that has just begun may have put on taints before this process knows its plan.
        if (stray_nodes or released or self._swept_at is None) and self._lease.acquire(0):
            try:
                seconds = self._context.defaults.cycle.adoption_seconds
                recover_plans(self._context.client, self._context.clock, seconds, self._context.picture.nodes)
            finally:
                self._lease.release()
        client, policies = self._context.client, self._store.known()
        sweep_cooling_nodes(client, self._context.clock, nodes)

        def wanted(mark: FreedMark) -> FreedNodes:
            return wanted_marks(policies.get(mark.policy), mark)

        waits = self._context.defaults.cycle.execution.timeouts
        if freed_nodes := settle_freed_nodes(
            client, self._context.clock, self._store.plans(), end_seconds=waits.end_seconds, wanted=wanted
        ):
            self._metrics.nodes_freed(freed_nodes)
        sweep_freed_nodes(client, nodes, self._context.picture.snapshot, wanted, self._whereabouts)


def wanted_marks(known: ParsedPolicy | None, mark: FreedMark) -> FreedNodes:
    """Return the marks that a freed node should carry by its policy.

    It carries none where the policy is gone, and all of them where no valid policy decides.
    """
    if mark.policy and known is None:
        return FreedNodes()
    if known is None or isinstance(known.run, PolicyError):
        return FreedNodes(taint=True, annotations=mark.annotations)
    return known.run.cycle.freed


def _uid_of(work: Task, known: Mapping[str, ParsedPolicy]) -> str:
    """Return the uid of a task's plan or policy."""
    match work:
        case ResumePlan(plan=plan) | ComputePlan(plan=plan):
            return plan.metadata.uid
        case RunPolicy(policy=name):
            return known[name].policy.metadata.uid


def _is_unbegun(outcome: Outcome) -> bool:
    """Return whether a run was stopped before it did anything, so that the next process makes it."""
    return outcome.verdict is Verdict.STOPPED and not outcome.published
