"""Runs the operator's threads: the workers, the leader with its Lease, and the regular resync.

`reservation.decide` decides, `reservation.act` acts, and `reservation.store` holds the state for both.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from berth_core import OPERATOR_LEASE, PATH_ANNOTATION, PATH_PROVEN, BerthError, Clock, Pod, Reservation, RetryableError
from berth_kube import Heartbeats, KubeClient, LeaseHolder
from berth_operator import metrics, telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.ending_namespaces import EndingNamespaces
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.act.executor import ActionExecutor
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.guards import NodeGuard
from berth_operator.reservation.act.handover_probe import HandoverProbe
from berth_operator.reservation.act.node_chooser import NodeChooser
from berth_operator.reservation.act.orphans import OrphanCollector
from berth_operator.reservation.act.pending_owners import PendingOwners
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.act.resync import Resync, list_reservations
from berth_operator.reservation.act.slow_admission import SlowAdmission
from berth_operator.reservation.act.standing_fences import BestEffortPods, StandingFences
from berth_operator.reservation.act.template_refusals import TemplateRefusals
from berth_operator.reservation.act.validator import Validator
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.reconciler import ReservationReconciler
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.reservation.store.informers import Informers
from berth_operator.reservation.throttle import Throttle
from berth_operator.runtime.active_time import ActiveTime, ClockWatch
from berth_operator.runtime.capability import Kernel, PolledKind
from berth_operator.runtime.lease_pace import LeasePace
from berth_operator.runtime.registry import CAPABILITIES, build_rules
from berth_operator.runtime.workers import Workers
from berth_operator.runtime.workqueue import Key, KeyKind, WorkQueue
from berth_operator.settings import OperatorSettings

_SYNC_SECONDS: Final = 30.0
_LEADER_TICK_SECONDS: Final = 0.1
_TRY_SECONDS: Final = 1.0
_LAST_ACTION_SECONDS: Final = 5.0
_LAST_WATCH_SECONDS: Final = 5.0

_LOG = structlog.get_logger(__name__)


class Controller:
    """Runs everything of the operator except kopf and the webhook's server."""

    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        queue: WorkQueue,
        scope: WebhookRegistration,
        settings: OperatorSettings,
        clock: Clock,
    ) -> None:
        self._client, self._cache, self._queue, self._scope = client, cache, queue, scope
        self._settings, self._clock = settings, clock
        self._rules = ClusterRules()
        self._priorities = PriorityClasses(client, self._rules)
        self._pod_groups = PodGroups(client, settings.placeholders.namespace)
        admission = SlowAdmission(settings.workers, clock.monotonic)
        context = Context(client, cache, settings, clock, build_rules(client), admission)
        self._probe = HandoverProbe(context, scope)
        self._throttle = Throttle(lambda: queue.late_seconds)
        self._recorder = EventRecorder(client, lambda: self._throttle.is_busy)
        self._lease_pace = LeasePace()
        self._standing_fences = StandingFences(context, self._priorities)
        self._best_effort = BestEffortPods(context, queue.add)
        self._ending_namespaces = EndingNamespaces(context)
        self._executor = self._build_executor(context)
        self._orphans = OrphanCollector(context, self._executor)
        fences = FenceManager(context, self._priorities)
        self._guards = NodeGuard(context, fences)
        self._refusals = TemplateRefusals(context, self._recorder)
        self._pending = PendingOwners(context, queue.add, self._refusals.report)
        self._reservations = ReservationReconciler(
            context,
            executor=self._executor,
            orphans=self._orphans,
            pending=self._pending,
            throttle=self._throttle,
            enqueue=queue.add,
        )
        kernel = Kernel(
            context=context,
            recorder=self._recorder,
            priorities=self._priorities,
            leads=lambda: self.leading,
            enqueue=queue.add,
            client_config=scope.client_config,
            listing=partial(PolledKind, client, clock),
        )
        self.capabilities = tuple(capability(kernel) for capability in CAPABILITIES)
        watchers = (capability.action_watcher() for capability in self.capabilities)
        self._executor.watch([watcher for watcher in watchers if watcher is not None])
        self._sweep = Resync(context, scope, self._pod_groups, fences, queue.add, self._resync_capabilities)
        self._stop, self._retired, self._started = threading.Event(), threading.Event(), threading.Event()
        self._informers = Informers(client, cache, self._rules, settings.placeholders.namespace, self._fail)
        self._failure: BerthError | None = None
        self._reservations_listed, self._listed_anew = threading.Event(), threading.Event()
        self._led = False
        self.heartbeats = Heartbeats(clock)
        self._lease = self._build_lease()
        self.workers = Workers(queue, self._dispatch, lambda: self.leading)
        self._attended = ActiveTime(clock, lambda: self.leading)
        cache.count_time_by(self._attended.seconds)
        self._actors: list[threading.Thread] = []
        self._reconcilers: Mapping[str, Callable[[Key], None]] = {
            KeyKind.RESERVATION: self._reservations.reconcile,
            KeyKind.NODE: self._reconcile_node,
            KeyKind.SCOPE: self._reconcile_scope,
            KeyKind.STRAYS: self._reconcile_strays,
            KeyKind.WAITING: lambda _: self._pending.search(),
            KeyKind.ENDING: lambda _: self._ending_namespaces.clear(),
            KeyKind.BEST_EFFORT: lambda _: self._best_effort.let_in(),
        }

    def _build_executor(self, context: Context) -> ActionExecutor:
        """Build the executor; Reservations count against quotas from now on."""
        quotas = QuotaAdmission(self._settings.limits, self._rules)

        def note(reservation: Reservation) -> None:
            quotas.note(reservation)
            self._lease_pace.note(reservation)

        def forget(uid: str) -> None:
            quotas.forget(uid)
            self._lease_pace.forget(uid)

        self._cache.on_reservation(note, forget)
        return ActionExecutor(
            context,
            probe=self._probe,
            priorities=self._priorities,
            pod_groups=self._pod_groups,
            validator=Validator(context, self._priorities, quotas),
            chooser=NodeChooser(context, self._standing_fences.budget),
            recorder=self._recorder,
            leads=lambda: self.leading,
        )

    def _build_lease(self) -> LeaseHolder:
        """Build the lease, whose notes show if the hand-over path is proven."""
        lease = LeaseHolder(
            self._client.apart(1),  # a connection of its own: no renewal waits for the other calls
            self._settings.placeholders.namespace,
            OPERATOR_LEASE,
            self._settings.identity,
            duration_seconds=self._settings.lease_seconds,
        )
        lease.publish(self._notes, renewals=self._lease_pace.renewals, heartbeats=self.heartbeats)
        self._probe.on_change(lease.renew_soon)
        self._lease_pace.on_first(lease.renew_soon)
        return lease

    def start(self) -> None:
        """Fill the cache and start the threads.

        Raises what the first lists raise; may be called again after a `RetryableError`.
        """
        # Before the long first lists: the next leader may take an unchanged Lease only after its duration, counted from
        # the first look.
        self._lease.look()
        self._list_reservations()
        self._informers.start()
        self._informers.wait_for_lists(_SYNC_SECONDS)
        missing_kinds = self._informers.missing()
        if missing_kinds:
            raise RetryableError(f"could not be listed within {_SYNC_SECONDS:g} s: {', '.join(missing_kinds)}")
        if self._failure is not None:
            raise self._failure
        self._spawn("leader", self._lead)
        # Threads of their own for what waits on an API server's webhook call or writes for people only: neither may
        # delay a worker in the middle of a hand-over.
        self._spawn("prover", lambda: self._probe.run(self._lease.held))
        for number in range(self._settings.workers):
            self._spawn(f"worker-{number}", self.workers.work)
        self._spawn("announcer", lambda: self._recorder.run(self._retired))
        self._spawn("template refusals", lambda: self._refusals.run(self._retired))
        self._started.set()

    def _list_reservations(self) -> None:
        """List all Reservations before kopf does; without the right to list them the operator must end."""
        deadline = time.monotonic() + _SYNC_SECONDS
        while True:
            try:
                list_reservations(self._client, self._cache)
            except RetryableError:
                if time.monotonic() > deadline or self._stop.wait(_TRY_SECONDS):
                    raise
            else:
                return

    def note_listed(self) -> None:
        """Record that kopf has listed all Reservations; it reports no earlier deletion."""
        self._reservations_listed.set()
        self._listed_anew.set()

    def note_not_gated(self, pod: Pod) -> None:
        """Record a pod that was not gated though a Reservation may be for it."""
        self._refusals.schedule(pod)

    def stop_acting(self) -> None:
        """Stop acting and release the lease, but keep watching: the webhook goes on answering from the cache."""
        self._retired.set()
        # Workers first, so that no new call begins; those under way are awaited below.
        self._queue.stop()
        self._probe.stop()
        deadline = time.monotonic() + _LAST_ACTION_SECONDS
        for thread in self._actors:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self._cache.start_epoch()  # later reviews go by what the next leader writes
        self._stop_term()
        # A worker that hangs in a call may still act: the Lease is left to expire, so that no replica acts beside it.
        if not any(thread.is_alive() for thread in self._actors):
            # Releasing sets no holder, so the next replica need not wait for the Lease to run out.
            self._lease.release()

    def stop(self) -> None:
        """Stop acting and watching, and release the lease."""
        self._stop.set()
        self.stop_acting()
        self._informers.stop(_LAST_WATCH_SECONDS)

    def _notes(self) -> dict[str, str | None]:
        """Return the notes that the Lease carries about its holder."""
        return {PATH_ANNOTATION: PATH_PROVEN if self._probe.proven else None, **self._settings.limits.notes()}

    @property
    def leading(self) -> bool:
        return self._lease.held()

    @property
    def healthy(self) -> bool:
        """Return whether every required thread is alive; true before the start."""
        return not self._stop.is_set() and not self._ended_threads()

    def why_not_serving(self) -> str:
        """Return why the cache is not complete and current, or ""."""
        if self._retired.is_set() or self._stop.is_set():
            return "the operator is about to stop"
        ended_threads = self._ended_threads()
        if ended_threads:
            return f"a thread has ended: {', '.join(ended_threads)}{f' ({self._failure})' if self._failure else ''}"
        heard = self._reservations_listed.is_set()
        missing_kinds = (*(() if heard else ("Reservations",)), *self._informers.missing())
        if not self._started.is_set() or missing_kinds:
            return f"the cache is not complete: {', '.join(missing_kinds)}"
        return ""

    def _ended_threads(self) -> tuple[str, ...]:
        """Return the names of threads that ended unexpectedly."""
        # A replica that drains ends its actors itself, and must stay alive for the reviews that still come.
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
        """Record the error that ends a thread: the start raises it, and health shows it."""
        self._failure = error
        _LOG.error(telemetry.THREAD_ENDED, **{telemetry.KEY_ERROR: str(error)})

    def _lead(self) -> None:
        """Acquire the lease when it is free, and resync the cache then, after dropped keys, and regularly.

        Without the lease the cache is resynced, too, for the webhook answers from it. After a change of the clock every
        key is reconciled.
        """
        last_sweep = last_look = time.monotonic()
        clock_watch = ClockWatch(self._clock)
        while not self._retired.wait(_LEADER_TICK_SECONDS):
            self._attended.seconds()
            self.heartbeats.beat("the leader")
            self._informers.attend()
            if clock_watch.was_set():
                self.workers.dropped.set()
            if self._listed_anew.is_set():
                self._listed_anew.clear()
                self._resync_known()
            if self._lease.held():
                for capability in self.capabilities:
                    capability.listen()
                self._informers.count_pods()
            else:
                # Another replica may write statuses from now on: none of those that this one wrote is trusted any more.
                self._cache.start_epoch()
                self._stop_term()
                # The first pass of the next term takes everything: what happened in between was another replica's.
                last_sweep = -math.inf
                self._announce_role(leads=self._try_to_lead())
                if time.monotonic() - last_look >= self._settings.sweep_seconds:
                    self._resync_known()
                    last_look = time.monotonic()
                continue
            if self.workers.dropped.is_set() or time.monotonic() - last_sweep >= self._settings.sweep_seconds:
                everything = self.workers.dropped.is_set() or math.isinf(last_sweep)
                self.workers.dropped.clear()
                self._sweep_once(everything=everything)
                last_sweep = last_look = time.monotonic()

    def _try_to_lead(self) -> bool:
        """Return whether the lease was acquired."""
        try:
            return self._lease.acquire(timeout=_TRY_SECONDS)
        except BerthError as error:
            _LOG.warning(telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "lease", telemetry.KEY_ERROR: str(error)})
            self._retired.wait(_TRY_SECONDS)
            return False

    def _resync_known(self) -> None:
        """Resync the known Reservations with the API server."""
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

    def _dispatch(self, key: Key) -> None:
        """Reconcile a key in the kernel, then in each capability that it concerns."""
        by_kernel = self._reconcilers.get(key.kind)
        if by_kernel is not None:
            by_kernel(key)
        for capability in self.capabilities:
            if key.kind in capability.kinds:
                capability.reconcile(key)

    def _stop_term(self) -> None:
        for capability in self.capabilities:
            capability.stop_term()

    def _resync_capabilities(self, is_due: Callable[[str], bool]) -> None:
        for capability in self.capabilities:
            capability.resync(is_due)

    def _reconcile_scope(self, _: Key) -> None:
        # The registration was written, so the last proof says nothing about the one that API servers read next.
        if self._scope.reconcile():
            self._probe.probe_soon()

    def _reconcile_strays(self, _: Key) -> None:
        self._orphans.release_stray_gates()
        self._pending.request_all()

    def _reconcile_node(self, key: Key) -> None:
        settling_seconds = self._guards.reconcile(key.name, self._clock.now())
        if settling_seconds is not None:
            self._queue.add(key, settling_seconds)
        self._standing_fences.reconcile(key.name, self._clock.now())
