"""The running operator: its threads, the workers that reconcile, the lease and the regular sweep.

`reconcile` decides, `executor` acts, and `cache` holds what both go by.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from berth_core import (
    OPERATOR_LEASE,
    OPERATOR_RENEWALS,
    PATH_ANNOTATION,
    PATH_PROVEN,
    BerthError,
    Clock,
    Pod,
    Reservation,
    RetryableError,
)
from berth_kube import NODES, PODS, KubeClient, LeaseHolder, NotFoundError
from berth_operator import metrics, telemetry
from berth_operator.cache import Cache, ClusterRules, GuardableNode, Informers
from berth_operator.executor import (
    ActionExecutor,
    Context,
    EventRecorder,
    FenceManager,
    HandoverProbe,
    NodeGuard,
    OrphanCollector,
    PendingOwners,
    PriorityClasses,
    QuotaAdmission,
    Resync,
    TemplateRefusals,
    Validator,
    WebhookRegistration,
    find_pod,
    list_reservations,
)
from berth_operator.reconcile import (
    Action,
    AssignSlot,
    Decision,
    DeletePlaceholder,
    Observation,
    Probe,
    Release,
    decide,
    has_just_expired,
    holds_our_gate,
    is_at_same_step,
    newly_lost,
    without_forged_claims,
)
from berth_operator.settings import OperatorSettings
from berth_operator.throttle import FairSharing, Throttle, has_share, only_starts
from berth_operator.workqueue import Key, KeyKind, WorkQueue

# --- clock watch -----------------------------------------------------------------------------------------------------
# Noticing that the clock was set or that this process did not act: neither is time that anything has waited for.

_SET_SECONDS: Final = 1.0
"""A smaller difference is the clock's own: it is corrected all the time."""


class ClockWatch:
    """Compares the time of day with the seconds that have passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._read_offset()

    def was_set(self) -> bool:
        """Return whether the clock was set forward or back since this was last asked."""
        before, self._offset = self._offset, self._read_offset()
        return abs(self._offset - before) > _SET_SECONDS

    def _read_offset(self) -> float:
        """Return how far the time of day is ahead of the seconds that have passed, which only setting it changes."""
        return self._clock.now().timestamp() - self._clock.monotonic()


_LONGEST_STEP_SECONDS: Final = 1.0
"""A longer pause between two looks counts as this: the process was stopped, or had no processor."""


class ActiveTime:
    """Counts the seconds during which this process could act: it ran, and it held its Lease; thread-safe.

    The Lease is held only while the API server answers. Of an interruption, at most a second and what the Lease is
    believed in without a renewal are counted. `seconds` has to be read at least once a second.
    """

    def __init__(self, clock: Clock, can_act: Callable[[], bool]) -> None:
        self._clock = clock
        self._can_act = can_act
        self._lock = threading.Lock()
        self._looked_at = clock.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Return how long this process has been able to act in all."""
        with self._lock:
            now = self._clock.monotonic()
            step, self._looked_at = now - self._looked_at, now
            if self._can_act():
                self._seconds += min(step, _LONGEST_STEP_SECONDS)
            return self._seconds


_FIRST_RETRY_SECONDS: Final = 0.2
_LONGEST_RETRY_SECONDS: Final = 10.0
_MOST_DOUBLINGS: Final = 10
"""What fails for hours makes a number that no float holds."""
_SYNC_SECONDS: Final = 30.0
_LEADER_TICK_SECONDS: Final = 0.1
_LEASE_TRY_SECONDS: Final = 1.0
_LIST_TRY_SECONDS: Final = 1.0
_LATER_SECONDS: Final = 1.0
"""When to look again at what had to wait: a proof, a hand-over."""
_LONGEST_GATED_WAIT_SECONDS: Final = 60.0
"""An owner that would have to wait longer for its turn is not kept back by our gate meanwhile."""
_LAST_ACTION_SECONDS: Final = 5.0
_LAST_WATCH_SECONDS: Final = 5.0

_LOG = structlog.get_logger(__name__)


class Controller:
    """Runs everything of the operator but kopf and the webhook's server."""

    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        queue: WorkQueue,
        scope: WebhookRegistration,
        settings: OperatorSettings,
        clock: Clock,
    ) -> None:
        self._client = client
        self._cache = cache
        self._queue = queue
        self._scope = scope
        self._settings = settings
        self._clock = clock
        self._rules = ClusterRules()
        self._priorities = PriorityClasses(client, self._rules)
        context = Context(client, cache, settings, clock)
        self._probe = HandoverProbe(context, scope)
        self._throttle = Throttle(lambda: queue.late_seconds)
        self._fair_sharing = FairSharing()
        self._recorder = EventRecorder(client, lambda: self._throttle.is_busy)
        self._executor = self._build_executor(context)
        self._orphans = OrphanCollector(context, self._executor)
        fences = FenceManager(context, self._priorities)
        self._guards = NodeGuard(context, fences)
        self._refusals = TemplateRefusals(context, self._recorder)
        self._pending = PendingOwners(context, queue.add, self._refusals.report)
        self._sweep = Resync(context, scope, self._priorities, fences, queue.add)
        self._stop = threading.Event()
        self._informers = Informers(client, cache, self._rules, settings.placeholders.namespace, self._fail)
        self._retired = threading.Event()
        self._started = threading.Event()
        self._failure: BerthError | None = None
        self._failures: dict[Key, int] = {}
        self._freed: set[str] = set()
        """Uids of Reservations whose time is up and whose places were released, but whose status does not say so."""
        self._dropped = threading.Event()
        self._reservations_listed = threading.Event()
        self._listed_anew = threading.Event()
        self._led = False
        self._lease = self._build_lease()
        self._attended = ActiveTime(clock, lambda: self.leading)
        cache.count_time_by(self._attended.seconds)
        self._actors: list[threading.Thread] = []

    def _build_executor(self, context: Context) -> ActionExecutor:
        """Return who acts; what Reservations hold is counted from now on."""
        quotas = QuotaAdmission(self._settings.limits, self._rules)
        self._cache.on_reservation(quotas.note, quotas.forget)
        return ActionExecutor(
            context,
            probe=self._probe,
            priorities=self._priorities,
            validator=Validator(context, self._priorities, quotas),
            recorder=self._recorder,
            leads=lambda: self.leading,
        )

    def _build_lease(self) -> LeaseHolder:
        """Return the lease, which tells whether the hand-over path is proven as soon as that changes."""
        lease = LeaseHolder(
            self._client,
            self._settings.placeholders.namespace,
            OPERATOR_LEASE,
            self._settings.identity,
            duration_seconds=self._settings.lease_seconds,
        )
        lease.publish(self._notes, renewals=OPERATOR_RENEWALS)
        self._probe.on_change(lease.renew_soon)
        return lease

    def start(self) -> None:
        """Fill the cache and begin to work; returns when the picture is complete. Raises what the first lists raise."""
        self._lease.look()
        self._list_reservations()
        self._informers.start()
        self._informers.wait_for_lists(_SYNC_SECONDS)
        missing = self._informers.missing()
        if missing:
            raise RetryableError(f"could not be listed within {_SYNC_SECONDS:g} s: {', '.join(missing)}")
        if self._failure is not None:
            raise self._failure
        self._spawn("leader", self._lead)
        self._spawn("prover", lambda: self._probe.run(self._lease.held))
        for number in range(self._settings.workers):
            self._spawn(f"worker-{number}", self._work)
        self._spawn("announcer", lambda: self._recorder.run(self._retired))
        self._spawn("template refusals", lambda: self._refusals.run(self._retired))
        self._started.set()

    def _list_reservations(self) -> None:
        """Take in all Reservations before kopf lists them, so that an operator without the right to them ends."""
        deadline = time.monotonic() + _SYNC_SECONDS
        while True:
            try:
                list_reservations(self._client, self._cache)
            except RetryableError:
                if time.monotonic() > deadline or self._stop.wait(_LIST_TRY_SECONDS):
                    raise
            else:
                return

    def note_listed(self) -> None:
        """Take note that kopf has listed all Reservations; what was deleted before it did, it tells nobody."""
        self._reservations_listed.set()
        self._listed_anew.set()

    def forget_failures(self, uid: str) -> None:
        """Have the next failure of a Reservation tried again as soon as the first one."""
        self._failures.pop(Key(KeyKind.RESERVATION, uid), None)

    def note_not_gated(self, pod: Pod) -> None:
        """Take note of a pod that the webhook let go although a Reservation may be for it."""
        self._refusals.schedule(pod)

    def stop_acting(self) -> None:
        """End what is under way and give the lease back, but go on watching.

        Where something cannot be ended in time the lease is left to expire: nobody is to act beside it.
        """
        self._retired.set()
        self._queue.stop()
        self._probe.stop()
        deadline = time.monotonic() + _LAST_ACTION_SECONDS
        for thread in self._actors:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self._cache.start_epoch()  # reviews are answered on, by what the next leader writes
        if not any(thread.is_alive() for thread in self._actors):
            self._lease.release()

    def stop(self) -> None:
        """Stop working and watching, and give the lease back."""
        self._stop.set()
        self.stop_acting()
        self._informers.stop(_LAST_WATCH_SECONDS)

    def _notes(self) -> dict[str, str | None]:
        """Return what the Lease tells about its holder."""
        return {PATH_ANNOTATION: PATH_PROVEN if self._probe.proven else None}

    @property
    def leading(self) -> bool:
        """Return whether this replica acts."""
        return self._lease.held()

    @property
    def healthy(self) -> bool:
        """Return whether every thread is alive that is to be, also before all of them were started."""
        return not self._stop.is_set() and not self._ended_threads()

    def why_not_serving(self) -> str:
        """Return why the picture of the cluster is not complete and kept up, "" where it is."""
        if self._retired.is_set() or self._stop.is_set():
            return "the operator is about to stop"
        ended = self._ended_threads()
        if ended:
            return f"what is to go on has ended: {', '.join(ended)}{f' ({self._failure})' if self._failure else ''}"
        heard = self._reservations_listed.is_set()
        missing = (*(() if heard else ("Reservations",)), *self._informers.missing())
        if not self._started.is_set() or missing:
            return f"the picture of the cluster is not complete: {', '.join(missing)}"
        return ""

    def _ended_threads(self) -> tuple[str, ...]:
        """Return the names of the threads that have ended and are not to."""
        actors = () if self._retired.is_set() else tuple(self._actors)
        return (*self._informers.ended(), *(thread.name for thread in actors if not thread.is_alive()))

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=lambda: self._run(target), name=name, daemon=True)
        self._actors.append(thread)
        thread.start()

    def _run(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BerthError as error:
            self._fail(error)

    def _fail(self, error: BerthError) -> None:
        """Keep the error that ends a thread for the start; it also shows in the health."""
        self._failure = error
        _LOG.error(telemetry.THREAD_ENDED, **{telemetry.KEY_ERROR: str(error)})

    # --- leading

    def _lead(self) -> None:
        """Win the lease whenever it is free; sweep when it is won, when keys were dropped, and regularly.

        Without it the picture is compared regularly, too: the webhook answers from it. When the clock was set all is
        looked at, for what is due was reckoned by another time.
        """
        last_sweep = last_look = time.monotonic()
        clock_watch = ClockWatch(self._clock)
        while not self._retired.wait(_LEADER_TICK_SECONDS):
            self._attended.seconds()
            if clock_watch.was_set():
                self._dropped.set()
            if self._listed_anew.is_set():
                self._listed_anew.clear()
                self._resync_known()
            if not self._lease.held():
                self._cache.start_epoch()
                last_sweep = -math.inf
                self._announce_role(leads=self._try_to_lead())
                if time.monotonic() - last_look >= self._settings.sweep_seconds:
                    self._resync_known()
                    last_look = time.monotonic()
            elif self._dropped.is_set() or time.monotonic() - last_sweep >= self._settings.sweep_seconds:
                everything = self._dropped.is_set() or math.isinf(last_sweep)
                self._dropped.clear()
                self._sweep_once(everything=everything)
                last_sweep = last_look = time.monotonic()

    def _try_to_lead(self) -> bool:
        """Return whether the lease could be won now."""
        try:
            return self._lease.acquire(timeout=_LEASE_TRY_SECONDS)
        except BerthError as error:
            _LOG.warning(telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "lease", telemetry.KEY_ERROR: str(error)})
            self._retired.wait(_LEASE_TRY_SECONDS)
            return False

    def _resync_known(self) -> None:
        """Compare the known Reservations with the API server's."""
        try:
            list_reservations(self._client, self._cache)
        except BerthError as error:
            _LOG.warning(telemetry.SWEEP_FAILED, **{telemetry.KEY_ERROR: str(error)})

    def _announce_role(self, *, leads: bool) -> None:
        metrics.LEADING.set(int(leads))
        if leads != self._led:
            role = telemetry.LEADING if leads else telemetry.FOLLOWING
            _LOG.info(role, **{telemetry.KEY_IDENTITY: self._settings.identity})
        self._led = leads

    def _sweep_once(self, *, everything: bool) -> None:
        try:
            self._sweep.run(everything=everything)
        except BerthError as error:
            _LOG.warning(telemetry.SWEEP_FAILED, **{telemetry.KEY_ERROR: str(error)})
        metrics.QUEUE_LENGTH.set(len(self._queue))

    # --- workers

    def _work(self) -> None:
        """Reconcile keys until stopped; without the lease they are dropped, for whoever has it sweeps up."""
        while (key := self._queue.take()) is not None:
            try:
                if self._lease.held():
                    self._reconcile(key)
                else:
                    self._dropped.set()
            finally:
                self._queue.done(key)

    def _reconcile(self, key: Key) -> None:
        """Reconcile one key; whatever fails is tried again, later each time."""
        started = time.monotonic()
        try:
            match key.kind:
                case KeyKind.RESERVATION:
                    self._reconcile_reservation(key)
                case KeyKind.NODE:
                    self._guards.reconcile(key.name, self._clock.now())
                case KeyKind.SCOPE:
                    if self._scope.reconcile():
                        self._probe.probe_soon()
                    if not self._cache.live_namespaces():
                        self._priorities.collect()
                case KeyKind.STRAYS:
                    self._orphans.release_stray_gates()
                    self._pending.request_all()
                case KeyKind.WAITING:
                    self._pending.search()
        except BerthError as error:
            self._retry(key, error)
            _LOG.info(telemetry.ACTION_FAILED, **{telemetry.KEY_UID: key.name, telemetry.KEY_ERROR: str(error)})
        except Exception as error:  # noqa: BLE001 - logged; one key must not end the loop
            self._retry(key, error)
            _LOG.exception(telemetry.RECONCILE_CRASHED, **{telemetry.KEY_UID: key.name})
        else:
            self._failures.pop(key, None)
        metrics.RECONCILE_SECONDS.labels(kind=key.kind.value).observe(time.monotonic() - started)

    def _retry(self, key: Key, error: Exception) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        metrics.ACTION_FAILURES.labels(error=type(error).__name__).inc()
        delay = min(_FIRST_RETRY_SECONDS * 2 ** min(failures, _MOST_DOUBLINGS), _LONGEST_RETRY_SECONDS)
        self._queue.add(key, delay)

    def _reconcile_reservation(self, key: Key) -> None:
        """Write the status first, so that it never promises more than is there, then act."""
        pause = self._throttle.reconcile_delay(key.name, only_starts=self._only_starts(key.name))
        if pause:
            self._queue.add(key, pause)
            return
        seen = self._observe(key.name)
        if seen is None:
            self._throttle.forget(key.name)
            self._fair_sharing.forget(key.name)
            self._freed.discard(key.name)
            self._orphans.release(key.name)
            return
        decision = decide(seen, self._clock.now(), self._settings)
        if self._lost_pods_changed(seen, decision):
            self._queue.add(key)
            return
        self._fair_sharing.observe(seen.reservation, decision.status)
        if self._releases_first(key, seen, decision):
            return
        waits = self._throttle.status_delay(key.name, seen.reservation.status, decision.status)
        if waits:
            self._queue.add(key, waits)
        else:
            with self._cache.writing(key.name, decision.status):
                self._executor.write_status(seen.reservation, decision.status)
        self._executor.execute(seen.reservation, self._what_is_due(key, seen.reservation, decision.actions))
        if decision.seeks_owners:
            self._pending.request(key.name)
        if decision.wake_seconds is not None:
            self._queue.add(key, decision.wake_seconds)

    def _lost_pods_changed(self, seen: Observation, decision: Decision) -> bool:
        """Read the owners anew whose slots are about to be called lost; return whether one is not as it was known.

        The loss of a slot is told once and for all: it must not be told of a pod that was bound meanwhile.
        """
        lost = {slot.owner.uid for slot in newly_lost(seen.reservation.status, decision.status) if slot.owner}
        return any(self._has_changed(pod) for pod in seen.owners if pod.metadata.uid in lost)

    def _has_changed(self, pod: Pod) -> bool:
        """Read a pod and return whether it is at another step of its hand-over than was known."""
        found = find_pod(self._client, pod)
        if found is None:
            self._cache.remove_pod(pod)
            return True
        self._cache.put_pod(found)
        return not is_at_same_step(pod, found)

    def _only_starts(self, uid: str) -> bool:
        """Return whether the placeholders of a Reservation are under way and nothing else is to be done for it."""
        reservation = self._cache.reservation(uid)
        placeholders, owners = self._cache.pods_of(uid)
        return reservation is not None and not owners and only_starts(reservation, placeholders)

    def _releases_first(self, key: Key, seen: Observation, decision: Decision) -> bool:
        """Release what an expired Reservation holds when much else is due; return whether its status waits.

        Places come before statuses then: when it ends was told long before, in its status.
        """
        frees = any(isinstance(action, DeletePlaceholder) for action in decision.actions)
        is_first = key.name not in self._freed and has_just_expired(seen.reservation, decision.status)
        if not (frees and is_first and self._throttle.is_busy):
            self._freed.discard(key.name)
            return False
        self._executor.execute(seen.reservation, decision.actions)
        self._freed.add(key.name)
        self._queue.add(key)
        return True

    def _what_is_due(self, key: Key, reservation: Reservation, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """Return the actions without a proof or a hand-over that has to wait, and look again for that."""
        due = actions
        if any(isinstance(action, Probe) for action in actions) and not self._throttle.may_probe(key.name):
            due = tuple(action for action in actions if not isinstance(action, Probe))
        if any(isinstance(action, AssignSlot) for action in due):
            due = tuple(self._in_turn(reservation.metadata.namespace, due))
        if due != actions:
            self._queue.add(key, _LATER_SECONDS)
        return due

    def _in_turn(self, namespace: str, actions: tuple[Action, ...]) -> Iterator[Action]:
        """Yield the actions without the hand-overs whose turn it is not; an owner that waits for long is let go."""
        under_way = self._cache.handovers()
        for action in actions:
            if not isinstance(action, AssignSlot):
                yield action
                continue
            pause = self._fair_sharing.delay(namespace, action.assignment.node)
            if pause > _LONGEST_GATED_WAIT_SECONDS:
                if holds_our_gate(action.pod):
                    yield Release(action.pod)
            elif not pause and has_share(namespace, under_way, self._settings.handover.at_once):
                under_way[namespace] += 1
                yield action

    def _observe(self, uid: str) -> Observation | None:
        """Return what is seen of a Reservation, at first without what its status claims and its placeholders deny."""
        seen = self._observe_with_nodes(uid)
        if seen is None or self._cache.is_own(uid):
            return seen
        believed = without_forged_claims(seen, self._clock.now(), self._settings.handover, self._runs_on)
        if believed is not seen:
            _LOG.warning(telemetry.CLAIM_DENIED, **{telemetry.KEY_RESERVATION: seen.reservation.key})
        return believed

    def _runs_on(self, placeholder: Pod) -> bool:
        """Return whether the API server says that a placeholder runs and is not to end."""
        meta = placeholder.metadata
        try:
            pod = self._client.get(PODS, meta.name, namespace=meta.namespace, type=Pod)
        except NotFoundError:
            return False
        return pod.metadata.uid == meta.uid and pod.status.phase == "Running" and not pod.is_terminating

    def _observe_with_nodes(self, uid: str) -> Observation | None:
        """Return what is seen of a Reservation; that a node is gone counts only if the API server says so.

        Pods and nodes come through separate watches: a placeholder may be heard of before the new node it is on.
        """
        seen = self._cache.observe(uid)
        if seen is None or seen.reservation.phase.terminal or not seen.missing_nodes:
            return seen
        for name in sorted(seen.missing_nodes):
            try:
                self._cache.put_node(self._client.get(NODES, name, type=GuardableNode))
            except NotFoundError:
                continue
        return self._cache.observe(uid)
