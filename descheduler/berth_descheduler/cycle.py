"""One cycle of the descheduler in numbered steps, from the Lease to the taints."""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from berth_core import (
    Clock,
    ClockDeadline,
    Deadline,
    InputError,
    MigrationPlan,
    MoveMethod,
    MoveState,
    PermanentError,
    PlannedMove,
    PlanPhase,
    RunMode,
    Snapshot,
)
from berth_descheduler import telemetry
from berth_descheduler.event_reasons import EventReason
from berth_descheduler.framework.interfaces import FailedMoves, PastMove
from berth_descheduler.migration.absent_programs import OPERATOR, why_absent
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import MOST_MOVES
from berth_descheduler.migration.moves.surge_eligibility import find_unsurgeable
from berth_descheduler.migration.nodes.cooling_marks import sweep_cooling_nodes
from berth_descheduler.migration.nodes.freed import settle_freed_nodes
from berth_descheduler.migration.nodes.freed_marks import sweep_freed_nodes
from berth_descheduler.migration.operator.cleanup import clean_up_after_operator
from berth_descheduler.migration.operator.liveness import OperatorLiveness
from berth_descheduler.migration.plans.abort import abort_plan
from berth_descheduler.migration.plans.events import announce
from berth_descheduler.migration.plans.execution import PlanDeletedError, execute_plan
from berth_descheduler.migration.plans.history import (
    PodName,
    find_failed_moves,
    find_last_moves,
    find_moved_pods,
    find_moves_of_others,
    find_pods_in_cooldown,
)
from berth_descheduler.migration.plans.leases import run_lease
from berth_descheduler.migration.plans.not_begun import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    too_little_gain_reason,
)
from berth_descheduler.migration.plans.publishing import conclude_request, note_replanned, publish_plan
from berth_descheduler.migration.plans.recovery import recover_plans
from berth_descheduler.migration.plans.requests import REPLAN_TRIGGER
from berth_descheduler.migration.replacement_trial.trial import ReplacementTrial
from berth_descheduler.migration.validation.pending_pods import pods_waiting_reason
from berth_descheduler.migration.validation.plan_review import PlanValidator
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Forecast, NotBegun, Outcome, Phase, PlanOutcome, RoomForecast, Verdict
from berth_descheduler.picture import Picture
from berth_descheduler.planner import Plan, PlannerSettings, plan, plan_surges, with_ways
from berth_descheduler.planner.cool_downs import PodCoolDown
from berth_descheduler.policy import (
    PlanInput,
    PlanSettings,
    PlanSettingsReader,
    find_restrictions,
    without_policy_limits,
)
from berth_descheduler.registry import EVERY_CAPABILITY, on_demand
from berth_descheduler.report import summarise_plan
from berth_descheduler.settings import CycleSettings
from berth_kube import MIGRATION_PLANS, KubeClient, LeaseHolder, NotFoundError

_LOG = structlog.get_logger(__name__)
_APPROVAL_POLL_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class CycleContext:
    """What a cycle works with."""

    client: KubeClient
    clock: Clock
    observer: CycleObserver
    stop: threading.Event
    """Set to end early: begin nothing new, bring to a safe end what is under way."""

    settings_of_plan: PlanSettingsReader | None = None
    """Settings for plans that other runs left; None: this run's own."""

    confirm: Callable[[Plan], bool] | None = None
    """Asks a person whether to carry out the run's first plan; None: no question is asked."""

    picture: Picture | None = None
    """The cluster as the whole program sees it, which a run watches; None: the run lists it for each question."""


@dataclass
class _PlanningDeadline(ClockDeadline):
    """The time limit of planning, which a request to stop ends."""

    stop: threading.Event = dataclasses.field(kw_only=True)

    def remaining_seconds(self) -> float | None:
        """Return the seconds left; None without a limit."""
        self.clock.monotonic()  # without a limit, too: that it is asked shows that the run works
        return 0.0 if self.stop.is_set() else super().remaining_seconds()


class Cycle:
    """One run of the descheduler; made for one `run`."""

    def __init__(
        self, context: CycleContext, settings: CycleSettings, planner: PlannerSettings, lease: LeaseHolder | None = None
    ) -> None:
        self._context = context
        self._client = context.client
        self._settings = settings
        self._picture = context.picture or Picture(context.client, settings.namespace)
        self._planner = limit_moves(planner)
        self._max_moves = planner.limits.max_moves
        self._moved: dict[PodName, datetime] = {}
        """The pods that this run has moved, by their new names, and when: none is moved twice."""
        self._blocked_reason = ""
        self.published = ""
        """Name of the last plan that this cycle published, "" before."""
        self._phases: dict[str, float] = {}
        self._begun_at = context.clock.monotonic()
        self._lease = lease or run_lease(context.client, context.clock, settings)

    def run(self, request: MigrationPlan | None = None) -> Outcome:
        """Run the cycle and return what it did; raises `BerthError` where the cluster does not let it go on.

        Its plan fills the `request`, if there is one.
        """
        if self._settings.dry_run:
            return self._ended(self._plan_only())
        outcome = self._run_alone(lambda: self._run_steps(request), watches=self._settings.begins_by_itself)
        if request is not None:
            conclude_request(self._client, self._context.clock, request, outcome)
        return self._ended(outcome)

    def resume(self, plan: MigrationPlan, blocked_reason: str = "") -> Outcome:
        """Execute a plan that was approved or that another run began; raises as `run` does.

        `blocked_reason` says why none of its moves may begin, if so.
        """
        self._blocked_reason = blocked_reason
        return self._ended(self._run_alone(lambda: self._resume(plan), watches=True))

    def _run_alone(self, steps: Callable[[], Outcome], *, watches: bool) -> Outcome:
        """Run the steps under the Lease; one that carries out a plan watches the cluster that it has read."""
        with self._timed(Phase.LEASE):  # 1 hold the lease, one run at a time
            if not self._lease.acquire(self._settings.lease_wait_seconds):
                return self._outcome(Verdict.LEASE_HELD)
        try:
            with (
                clean_up_after_operator(self._client, self._context.clock, self._settings),
                self._picture.watched() if watches and self._context.picture is not None else nullcontext(),
            ):
                return steps()
        finally:
            # Released, not left to expire: the next run would wait for its whole duration.
            self._lease.release()

    def _resume(self, plan: MigrationPlan) -> Outcome:
        with self._timed(Phase.LEFTOVERS):
            leftovers_by_uid = {leftover_plan.metadata.uid: leftover_plan for leftover_plan in self._clear_leftovers()}
        if plan.phase is PlanPhase.RUNNING and plan.metadata.uid not in leftovers_by_uid:
            reason_not_begun = (
                f"Plan {plan.metadata.name} was interrupted too long ago to be continued, or is over; nothing was done."
            )
            return self._outcome(Verdict.ABORTED, why=reason_not_begun)
        adopted_outcomes = tuple(
            self._adopt(leftover_plan for uid, leftover_plan in leftovers_by_uid.items() if uid != plan.metadata.uid)
        )
        if self._context.stop.is_set():
            return self._outcome(Verdict.STOPPED, adopted=adopted_outcomes)
        if plan.phase is not PlanPhase.RUNNING and (reason_not_begun := self._why_no_operator()):
            abort_plan(
                self._client, plan, self._context.clock, f"aborted: {reason_not_begun[0].lower()}{reason_not_begun[1:]}"
            )
            return self._outcome(
                Verdict.NO_OPERATOR, why=reason_not_begun, published=plan.metadata.name, adopted=adopted_outcomes
            )
        try:
            plan_outcome = self._execute(plan, adopted=plan.phase is PlanPhase.RUNNING)
        except PlanDeletedError:
            return self._outcome(Verdict.PLAN_DELETED, adopted=adopted_outcomes)
        outcome = self._outcome(Verdict.CARRIED_OUT, plan=plan_outcome)
        if plan.spec.policy and not self._blocked_reason:  # without its policy nothing says how to plan the rest
            outcome = self._plan_rest(outcome, plan)
        return dataclasses.replace(outcome, adopted=adopted_outcomes)

    def _run_steps(self, request: MigrationPlan | None) -> Outcome:
        with self._timed(Phase.LEFTOVERS):  # 2 undo or adopt what an interrupted run left
            # Before any snapshot: taints and places that an ended run left would shut nodes for the plan.
            leftovers = self._clear_leftovers()
        adopted_outcomes = tuple(self._adopt(leftovers))
        if self._context.stop.is_set():
            return self._outcome(Verdict.STOPPED, adopted=adopted_outcomes)
        outcome, published_plan = self._make_plan(request)
        return dataclasses.replace(self._plan_rest(outcome, published_plan), adopted=adopted_outcomes)

    def _make_plan(self, request: MigrationPlan | None, rest_of: str = "") -> tuple[Outcome, MigrationPlan | None]:
        """Make a plan and execute it if it may begin by itself; return it as well, if it was published.

        `rest_of` names the plan whose remaining moves it makes.
        """
        proposed_plan, not_begun = self._find_plan_to_begin()  # 3 snapshot, 4 score, 5 plan
        forecast = _forecast(proposed_plan)
        stopping = self._context.stop.is_set()  # then planning may have been cut short
        if not_begun is not None and not stopping:
            return self._outcome(not_begun.verdict, why=not_begun.sentence, forecast=forecast), None
        begins_now = not (stopping or proposed_plan.does_nothing) and self._settings.mode in {None, RunMode.AUTO}
        if begins_now and (why_no_operator := self._why_no_operator()):
            return self._outcome(Verdict.NO_OPERATOR, why=why_no_operator, forecast=forecast), None
        # Who agreed to the first plan of a run agreed to what it is for; the plans for its rest are not asked about
        # again.
        verdict = Verdict.STOPPED if stopping else self._confirm(proposed_plan, asks=not rest_of)
        if verdict is not None:
            return self._outcome(verdict, forecast=forecast), None
        try:
            with self._timed(Phase.PUBLISH):  # 6 publish
                published_plan = self._publish(proposed_plan, request)
            if rest_of:
                note_replanned(self._client, self._context.clock, rest_of, published_plan.metadata.name)
            with self._timed(Phase.APPROVAL):  # 7 wait for approval if asked
                verdict = self._await_approval(published_plan)
            plan_name = published_plan.metadata.name
            if verdict is not None:
                return self._outcome(verdict, published=plan_name, forecast=forecast), published_plan
            plan_outcome = self._execute(published_plan, adopted=False)  # 8 to 12
        except PlanDeletedError:
            return self._outcome(Verdict.PLAN_DELETED, forecast=forecast), None
        return self._outcome(
            Verdict.CARRIED_OUT, plan=plan_outcome, published=plan_name, forecast=forecast
        ), published_plan

    def _why_no_operator(self) -> str:
        """Return that no operator is there to hold places, before anything is made that waits for one."""
        stop, namespace = self._context.stop, self._settings.namespace
        clock = self._context.clock
        why_no_operator = why_absent(self._client, clock, OPERATOR, namespace=namespace, is_stopped=stop.is_set)
        return f"Not begun, and nothing was moved: {why_no_operator}." if why_no_operator else ""

    def _confirm(self, proposed_plan: Plan, *, asks: bool) -> Verdict | None:
        """Return why a plan is not published, None if it is, after the question if the run has one."""
        if proposed_plan.does_nothing:
            return Verdict.NOTHING_TO_MOVE
        if not asks or self._context.confirm is None or self._context.confirm(proposed_plan):
            return None
        return Verdict.STOPPED if self._context.stop.is_set() else Verdict.DECLINED

    def _plan_rest(self, outcome: Outcome, carried_out: MigrationPlan | None) -> Outcome:
        """Plan again what outdated plans could not do, as long as each plan brings something.

        All plans of the run together keep its limits.
        """
        replanned_outcomes: list[PlanOutcome] = []
        while carried_out is not None and (plan_outcome := outcome.plan) is not None and plan_outcome.outdated:
            brought_nothing = bool(replanned_outcomes) and not plan_outcome.landed_on_target
            if brought_nothing or self._context.stop.is_set() or not self._narrow(carried_out, plan_outcome):
                break
            outcome_again, carried_out = self._make_plan(None, rest_of=plan_outcome.plan)
            if carried_out is None:
                outcome = dataclasses.replace(outcome, not_replanned=outcome_again.sentence)
                break
            replanned_outcomes.append(plan_outcome)
            outcome = outcome_again
        seconds = self._context.clock.monotonic() - self._begun_at
        return dataclasses.replace(
            outcome, replanned=tuple(replanned_outcomes), seconds=seconds, phases=dict(self._phases)
        )

    def _narrow(self, plan: MigrationPlan, outcome: PlanOutcome) -> bool:
        """Leave a further plan what this one has left of the run's limits; return whether that is anything."""
        settings, planner, now = self._settings, self._planner, self._context.clock.now()
        pairs = zip(plan.spec.moves, outcome.statuses, strict=True)
        # The limits of the policy hold for the run, not for each of its plans.
        begun_moves = (*planner.run.begun, *(move for move, status in pairs if status.state is not MoveState.SKIPPED))
        self._moved |= {
            (status.namespace, status.replacement): now for status in outcome.statuses if status.replacement
        }
        # One second earlier, as the marks on nodes have whole seconds: a mark of this run must not seem older than it.
        began = planner.run.began or now - timedelta(seconds=outcome.seconds + 1)
        moves_left = None if self._max_moves is None else self._max_moves - len(begun_moves)
        max_seconds = settings.execution.max_seconds
        seconds_left = None if max_seconds is None else max_seconds - (now - began).total_seconds()
        if (moves_left is not None and moves_left <= 0) or (seconds_left is not None and seconds_left <= 0):
            return False
        run = dataclasses.replace(planner.run, begun=begun_moves, began=began, earlier=plan.spec.moves)
        planner = dataclasses.replace(planner.within(moves_left), run=run)
        self._planner = limit_moves(planner if planner.run.now is None else planner.at(now))
        self._settings = dataclasses.replace(
            settings,
            execution=dataclasses.replace(settings.execution, max_seconds=seconds_left),
            max_replans=settings.max_replans - 1,
            min_freed_nodes=max(0, settings.min_freed_nodes - len(outcome.freed_nodes) - len(outcome.freeing_nodes)),
            plan_name="",
            trigger=REPLAN_TRIGGER,
        )
        return True

    def _plan_only(self) -> Outcome:
        return self._outcome(Verdict.DRY_RUN, forecast=_forecast(self._find_plan(self._read_snapshot_timed())))

    def _clear_leftovers(self) -> tuple[MigrationPlan, ...]:
        adoption_seconds = self._settings.adoption_seconds
        leftovers = recover_plans(self._client, self._context.clock, adoption_seconds, self._picture.nodes)
        plans = self._client.list(MIGRATION_PLANS, type=MigrationPlan).items
        end_seconds = self._settings.execution.timeouts.end_seconds
        if freed_nodes := settle_freed_nodes(self._client, self._context.clock, plans, end_seconds=end_seconds):
            self._context.observer.nodes_freed(freed_nodes)
        is_looked_at = self._settings.mode in {RunMode.PLAN, RunMode.APPROVE}
        self._keep_to(find_last_moves(plans, self._settings.policy, with_proposed=is_looked_at))
        policy = self._settings.policy
        moved_pods = find_moved_pods(plans, self._context.clock.now())
        self._note_past(moved_pods, find_failed_moves(plans, policy), find_moves_of_others(plans, policy))
        nodes = self._picture.nodes()
        sweep_freed_nodes(self._client, nodes, self._read_snapshot)
        sweep_cooling_nodes(self._client, self._context.clock, nodes)
        return leftovers

    def _keep_to(self, moves: tuple[PlannedMove, ...]) -> None:
        """Keep to moves of an earlier plan where others bring no more."""
        self._planner = dataclasses.replace(self._planner, run=dataclasses.replace(self._planner.run, earlier=moves))

    def _note_past(
        self,
        moved: Mapping[PodName, datetime],
        failed: Mapping[str, FailedMoves],
        of_others: tuple[PastMove, ...],
    ) -> None:
        """Note what plans have moved lately, which moves of the policy have failed, and what other policies moved."""
        run = dataclasses.replace(self._planner.run, moved=moved, failed=failed, of_others=of_others)
        self._planner = dataclasses.replace(self._planner, run=run)

    def _adopt(self, leftovers: Iterable[MigrationPlan]) -> Iterator[PlanOutcome]:
        """Resume the plans of interrupted runs under their own policies' settings.

        A plan that was deleted meanwhile is skipped; one that cannot be resumed fails, and the others go on.
        """
        for leftover_plan in leftovers:
            try:
                if (chosen_settings := self._settings_of_plan(leftover_plan)) is not None:
                    yield self._resume_with_one_retry(leftover_plan, chosen_settings)
            except PlanDeletedError:
                continue
            except (PermanentError, InputError) as error:
                keys = {telemetry.KEY_PLAN: leftover_plan.metadata.name, telemetry.KEY_ERROR: str(error)}
                _LOG.error(telemetry.WORK_FAILED, **keys)
                text = f"Failed: it cannot be carried out: {error}"
                abort_plan(self._client, leftover_plan, self._context.clock, text, PlanPhase.FAILED)

    def _resume_with_one_retry(self, published: MigrationPlan, chosen: PlanSettings) -> PlanOutcome:
        """Resume a plan, and retry once after an error; the next run of its own policy plans what it leaves."""
        chosen = dataclasses.replace(chosen, settings=dataclasses.replace(chosen.settings, max_replans=0))
        try:
            return self._execute(published, adopted=True, chosen=chosen)
        except PlanDeletedError:
            raise
        except (PermanentError, InputError):
            self._context.stop.wait(_AGAIN_SECONDS)
            return self._execute(published, adopted=True, chosen=chosen)

    def _settings_of_plan(self, plan: MigrationPlan) -> PlanSettings | None:
        settings_of_plan = self._context.settings_of_plan
        if settings_of_plan is not None:
            return settings_of_plan(plan)
        planner = self._planner if plan.spec.policy else without_policy_limits(plan, self._planner)
        return PlanSettings(self._settings, planner)

    def _find_plan_to_begin(self) -> tuple[Plan, NotBegun | None]:
        """Plan until no pending pod needs the room of the moves, or time is up.

        Returns the plan with the reason not to begin it, if there is one.
        """
        clock, execution = self._context.clock, self._settings.execution
        begun_at, pause = clock.monotonic(), FIRST_PAUSE_SECONDS
        history = self._keep_moved_pods()
        while True:
            snapshot = self._read_snapshot_timed()
            proposed_plan = self._find_plan(snapshot)
            for capability in EVERY_CAPABILITY:
                capability.announce(self._client, clock, proposed_plan, snapshot)
            not_worth_it = too_little_gain_reason(proposed_plan, history, self._settings, clock.now())
            request = on_demand(proposed_plan.objective)
            mode = self._settings.mode
            reason_pods_stay = None if request is None else request.why_not_begun(proposed_plan, snapshot, mode)
            if not_worth_it is not None or not self._settings.begins_by_itself:
                return proposed_plan, not_worth_it or reason_pods_stay
            waited = clock.monotonic() - begun_at
            reason_not_begun = reason_pods_stay or pods_waiting_reason(proposed_plan, snapshot, waited)
            if (
                reason_not_begun is None
                or not reason_not_begun.passes
                or waited >= execution.pending_wait_seconds
                or self._context.stop.is_set()
            ):
                return proposed_plan, reason_not_begun
            _LOG.info(telemetry.PODS_WAIT, **{telemetry.KEY_SENTENCE: reason_not_begun.sentence})
            self._context.stop.wait(min(pause, max(0.0, execution.pending_wait_seconds - waited)))
            # Pending pods may take seconds or a scale-up's minutes; each look lists the cluster and plans again.
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _keep_moved_pods(self) -> tuple[MigrationPlan, ...]:
        """Exclude the pods in cool-down from planning; return the earlier plans."""
        history, resting_pods = self._read_history(self._settings)
        self._planner = self._planner.with_rule(PodCoolDown(resting_pods))
        return history

    def _read_history(self, settings: CycleSettings) -> tuple[tuple[MigrationPlan, ...], Mapping[PodName, datetime]]:
        """Return earlier plans and pods in cool-down; without one, only those that this run has moved."""
        cool_down = settings.pod_cool_down
        if not cool_down:
            return (), self._moved
        history = self._client.list(MIGRATION_PLANS, type=MigrationPlan).items
        return history, {**find_pods_in_cooldown(history, self._context.clock.now(), cool_down), **self._moved}

    def _read_snapshot_timed(self) -> Snapshot:
        with self._timed(Phase.SNAPSHOT):
            return self._read_snapshot()

    def _find_plan(self, snapshot: Snapshot) -> Plan:
        """Plan on a snapshot; planning includes scoring, so both share one phase."""
        surges = self._settings.moves is MoveMethod.SURGE
        why_not = partial(find_unsurgeable, self._picture.around_surges())

        def make(plan_input: PlanInput, deadline: Deadline) -> Plan:
            limited_settings = limit_moves(plan_input.settings)

            def plan_on(cluster: Snapshot, until: Deadline) -> Plan:
                return plan(cluster, limited_settings, until)

            cluster = plan_input.snapshot
            return plan_surges(cluster, plan_on, why_not, deadline) if surges else plan_on(cluster, deadline)

        input_of_run = PlanInput(snapshot, self._planner.within(self._max_moves))
        with self._timed(Phase.PLAN):
            # One time limit for the plan and for the plans by which it is asked what holds it back.
            deadline = self._deadline()
            proposed_plan = make(PlanInput(snapshot, self._planner), deadline)
            restrictions = find_restrictions(
                input_of_run, proposed_plan, lambda plan_input: make(plan_input, deadline), deadline
            )
            proposed_plan = dataclasses.replace(proposed_plan, restrictions=restrictions)
            if surges and self._settings.dry_run:
                proposed_plan = with_ways(proposed_plan, snapshot, why_not)
        self._context.observer.planned(proposed_plan)
        return proposed_plan

    def _deadline(self) -> Deadline:
        context = self._context
        return _PlanningDeadline(context.clock, self._planner.search.time_limit_seconds, stop=context.stop)

    def _read_snapshot(self, planner: PlannerSettings | None = None) -> Snapshot:
        """Read the cluster, and what the plugins of some settings read, by default of the run's own."""
        plugins = (planner or self._planner).plugins
        return self._picture.snapshot(plugins.reads)

    def _publish(self, proposed_plan: Plan, request: MigrationPlan | None) -> MigrationPlan:
        """Publish the plan; raises `PlanDeletedError` where the requested plan is gone."""
        try:
            published_plan = publish_plan(self._client, self._context.clock, self._settings, proposed_plan, request)
        except NotFoundError as error:
            raise PlanDeletedError("the requested plan was deleted before it was made") from error
        self.published = published_plan.metadata.name
        self._context.observer.plan_published(published_plan.metadata.name, approved=published_plan.spec.approved)
        return published_plan

    def _await_approval(self, published: MigrationPlan) -> Verdict | None:
        """Return why a plan may not begin; waits for approval only where the plan belongs to no policy."""
        if published.is_aborted:
            return self._abort(published, Verdict.ABORTED, "aborted: an abort was requested before it began")
        match self._settings.mode:
            case RunMode.PLAN:
                return Verdict.PLANNED
            case RunMode.APPROVE:
                return Verdict.AWAITS_APPROVAL
            case _:
                return self._wait_for_approval(published)

    def _wait_for_approval(self, published: MigrationPlan) -> Verdict | None:
        plan_name, clock = published.metadata.name, self._context.clock
        deadline = clock.monotonic() + self._settings.approval_seconds
        observed_plan = published
        while not observed_plan.spec.approved:
            if observed_plan.is_aborted:
                return self._abort(observed_plan, Verdict.ABORTED, "aborted: an abort was requested before it began")
            if self._context.stop.is_set() or clock.monotonic() >= deadline:
                verdict = Verdict.STOPPED if self._context.stop.is_set() else Verdict.NOT_APPROVED
                return self._abort(observed_plan, verdict, "aborted: it was not approved in time")
            # Polled, not watched: one object, and mostly for a short time.
            self._context.stop.wait(_APPROVAL_POLL_SECONDS)
            try:
                observed_plan = self._client.get(MIGRATION_PLANS, plan_name, type=MigrationPlan)
            except NotFoundError:
                return Verdict.PLAN_DELETED
            if observed_plan.metadata.uid != published.metadata.uid:
                return Verdict.PLAN_DELETED  # another plan has its name by now, and the approval is of that one
        return None

    def _abort(self, plan: MigrationPlan, verdict: Verdict, message: str) -> Verdict:
        abort_plan(self._client, plan, self._context.clock, message)
        return verdict

    def _execute(self, published: MigrationPlan, *, adopted: bool, chosen: PlanSettings | None = None) -> PlanOutcome:
        """Execute a plan by its own settings or by this run's, without moving pods in cool-down."""
        chosen = chosen or PlanSettings(self._settings, self._planner, self._blocked_reason)
        planner = chosen.planner.with_rule(PodCoolDown(self._read_history(chosen.settings)[1]))
        read_snapshot = partial(self._read_snapshot, planner)
        trial = ReplacementTrial(
            self._client, self._context.clock, chosen.settings.namespace, partial(self._record_untried, published)
        )
        context = PlanContext(
            client=self._client,
            clock=self._context.clock,
            picture=self._picture,
            settings=chosen.settings,
            lease=self._lease,
            stop=self._context.stop,
            observer=self._context.observer,
            timed=self._timed,
            operator=OperatorLiveness(self._client, self._context.clock, chosen.settings.namespace),
            reviewer=PlanValidator(published, planner, read_snapshot, blocked_reason=chosen.blocked_reason),
            pre_eviction_check=PreEvictionCheck(
                planner.plugins,
                read_snapshot,
                self._client,
                self._context.clock,
                planner.scope.own_namespace,
                gone_at_once=planner.limits.waves.gone_of_controller,
            ),
            replacement_trial=trial,
        )
        with closing(trial):
            return execute_plan(context, published, adopted=adopted)

    def _record_untried(self, plan: MigrationPlan, reason: str) -> None:
        """Record once that the replacements of a plan's pods are not tried by dry run, and why."""
        _LOG.info(telemetry.TRIALS_LEFT_OUT, **{telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_REASON: reason})
        self._context.observer.replacements_untried(reason)
        message = f"{telemetry.TRIALS_LEFT_OUT}: {reason}"
        announce(self._client, self._context.clock, plan, EventReason.REPLACEMENTS_NOT_TRIED, message)

    @contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        """Time a phase; repeated phases add up."""
        self._context.observer.phase_begun(phase)
        begun_at = self._context.clock.monotonic()
        try:
            yield
        finally:
            seconds = self._context.clock.monotonic() - begun_at
            self._phases[phase.value] = self._phases.get(phase.value, 0.0) + seconds
            self._context.observer.phase_ended(phase, seconds)
            keys = {telemetry.KEY_PHASE: phase.value, telemetry.KEY_SECONDS: round(seconds, 3)}
            _LOG.debug(telemetry.PHASE_ENDED, **keys)

    def _ended(self, outcome: Outcome) -> Outcome:
        self._context.observer.cycle_ended(outcome)
        _LOG.info(telemetry.CYCLE_ENDED, **{telemetry.KEY_SENTENCE: outcome.sentence})
        return outcome

    def _outcome(
        self,
        verdict: Verdict,
        *,
        plan: PlanOutcome | None = None,
        published: str = "",
        why: str = "",
        forecast: Forecast | None = None,
        adopted: tuple[PlanOutcome, ...] = (),
    ) -> Outcome:
        return Outcome(
            verdict=verdict,
            plan=plan,
            published=published,
            why=why,
            forecast=forecast or Forecast(),
            adopted=adopted,
            seconds=self._context.clock.monotonic() - self._begun_at,
            phases=dict(self._phases),
        )


def limit_moves(planner: PlannerSettings) -> PlannerSettings:
    """Return settings whose plan fits into one object; the next run moves the rest."""
    max_moves = MOST_MOVES if planner.limits.max_moves is None else min(planner.limits.max_moves, MOST_MOVES)
    return planner.within(max_moves)


def _forecast(proposed_plan: Plan) -> Forecast:
    return Forecast(
        predicted=proposed_plan.predicted,
        objective=proposed_plan.objective,
        refused=len(proposed_plan.refused),
        summary=summarise_plan(proposed_plan),
        upper_bound=proposed_plan.quality.upper_bound if proposed_plan.quality else None,
        proven_optimal=proposed_plan.quality.proven_optimal if proposed_plan.quality else None,
        room=tuple(RoomForecast(room.name, room.wanted, room.fitted) for room in proposed_plan.room),
    )
