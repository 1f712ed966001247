"""The operator's parts, wired together, and their start and stop order."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import structlog

from berth_core import OPERATOR_LEASE, BerthError, Clock, Pod, Reservation, RetryableError
from berth_kube import (
    LEASES,
    PRIORITY_CLASSES,
    RESERVATIONS,
    Backoff,
    KubeClient,
    NotFoundError,
    UntrustedServerError,
    await_rights,
    version_number,
)
from berth_operator import metrics, telemetry
from berth_operator.admission.certificate_manager import CertificateManager
from berth_operator.admission.reviews import Admission
from berth_operator.admission.server import REFETCH_SECONDS, WebhookServer
from berth_operator.reservation.act.pending_owners import ReserveableGroups
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.informers import apply_event, apply_handled
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.runtime.controller import Controller
from berth_operator.runtime.loop_threads import LoopThread, loop_answers
from berth_operator.runtime.silence import Silence
from berth_operator.runtime.workqueue import SCOPE_KEY, Key, KeyKind, WorkQueue
from berth_operator.settings import OperatorSettings
from berth_service.health import Answer, HealthServer
from berth_service.memory import release_memory_regularly

_LOOP_SECONDS: Final = 10.0
"""Longer than a kubelet waits for a probe: the loop may be busy for a while with a long list."""
_BEAT_SECONDS: Final = 1.0
_START_AGAIN: Final = Backoff(first_seconds=0.5, longest_seconds=5.0)

_LOG = structlog.get_logger(__name__)


class App:
    """The operator: what kopf starts and stops."""

    def __init__(self, client: KubeClient, settings: OperatorSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client = client
        self._queue = WorkQueue(self._namespace_of)
        self._cache = Cache(self._queue.add)
        self._keeper = CertificateManager(client, settings)
        groups = ReserveableGroups(client.within(REFETCH_SECONDS))
        admission = Admission(self._cache, on_not_gated=self._note_not_gated, refetch=self._refetch, groups=groups)
        self._webhook_loop = LoopThread("webhook")  # a pod's creation must not wait for kopf's events
        scope = WebhookRegistration(
            client,
            client_config=self._client_config,
            live_namespaces=self._cache.live_namespaces,
            own_namespace=settings.placeholders.namespace,
            timeout_seconds=settings.webhook.timeout_seconds,
        )
        self._engine = Controller(client, self._cache, self._queue, scope, settings, clock)
        reviews = {
            path: review for capability in self._engine.capabilities for path, review in capability.reviews().items()
        }
        self._webhook = WebhookServer(admission, self._keeper, settings, reviews=reviews)
        # Of its own thread and port: the kubelet's probes must get an answer, good or bad, while kopf's loop is stuck.
        self._health = HealthServer(
            settings.health_host,
            settings.health_port,
            metrics.REGISTRY,
            healthz=partial(self._answer_probe, "healthy"),
            readyz=partial(self._answer_probe, "ready"),
        )
        self._kopf_loop: asyncio.AbstractEventLoop | None = None
        self._renewal = threading.Thread(target=self._renew_certificates, name="certificates", daemon=True)
        self._stopping = threading.Event()
        tasks_of_capabilities = (capability.tasks() for capability in self._engine.capabilities)
        self._tasks = [
            # Daemon threads, so that one in a call that hangs does not keep the process until the kubelet kills it.
            threading.Thread(target=run, args=(self._stopping,), name=task_name, daemon=True)
            for tasks in ({"memory": release_memory_regularly}, *tasks_of_capabilities)
            for task_name, run in tasks.items()
        ]
        self.has_started = False
        self.silence = Silence()
        self.failure: BerthError | None = None
        """The error that made the start fail, for the process's exit code."""

    def _namespace_of(self, key: Key) -> str:
        return self._cache.namespace_of(key)

    def _client_config(self) -> Mapping[str, Any]:
        """Return how API servers reach the webhook, which is built after those that register it."""
        return self._webhook.client_config()

    async def start(self) -> None:
        """Start everything once; wait while the API server does not answer, and raise only what no waiting changes."""
        # kopf calls its startup handlers in each of its runs, of which one process may have several (see `run_kopf`).
        if self.has_started:
            return
        try:
            await self._start_parts()
        except BerthError as error:
            self.failure = error
            raise

    async def _start_parts(self) -> None:
        # The health port comes first, so that the kubelet's probes are answered while the API server is waited for. The
        # webhook serves before it is registered, and no worker starts before the cache is complete.
        self._kopf_loop = asyncio.get_running_loop()
        self._beat(self._kopf_loop)
        await asyncio.to_thread(self._health.start)
        await asyncio.to_thread(await_rights, self._clock, self._read_lease, self._list_priorities)
        await self._until_answered(lambda: self._keeper.refresh(self._clock.now()))
        self._webhook_loop.start()
        await self._webhook_loop.run(self._webhook.start())
        for capability in self._engine.capabilities:
            await capability.start()
        await self._until_answered(self._engine.start)
        self._renewal.start()
        for task in self._tasks:
            task.start()
        self.has_started = True
        _LOG.info(
            telemetry.STARTED,
            **{
                telemetry.KEY_IDENTITY: self._settings.identity,
                telemetry.KEY_ADDRESS: self._health.address,
            },
        )

    async def _until_answered(self, step: Callable[[], object]) -> None:
        """Carry out a step of the start, again and again while the API server does not answer it."""
        for failures in itertools.count(1):
            try:
                # In a thread, since the official client blocks, and kopf's loop has to go on beating.
                await asyncio.to_thread(step)
            except UntrustedServerError:
                raise  # no waiting makes its certificate trusted
            except RetryableError as error:
                wait_seconds = _START_AGAIN.wait_seconds(failures)
                _LOG.warning(
                    telemetry.START_WAITS, **{telemetry.KEY_ERROR: str(error), telemetry.KEY_SECONDS: wait_seconds}
                )
                await asyncio.sleep(wait_seconds)
            else:
                return

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record again and again that kopf's loop works: the Lease is renewed only while it does."""
        self._engine.heartbeats.beat("kopf")
        loop.call_later(_BEAT_SECONDS, self._beat, loop)

    def _read_lease(self) -> None:
        self._client.get(LEASES, OPERATOR_LEASE, namespace=self._settings.placeholders.namespace)

    def _list_priorities(self) -> None:
        self._client.list(PRIORITY_CLASSES)

    def apply_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Apply a Reservation's watch event to the cache, which queues the follow-up."""
        apply_event(self._cache, event_type, body)

    def apply_handled(self, line: bytes) -> str:
        """Apply a line of kopf's watch if its spec is handled already, and return its resourceVersion, else ""."""
        return apply_handled(self._cache, line)

    def is_behind(self, version: str) -> bool:
        """Return whether the API server's last version is below `version`; False where it does not answer."""
        try:
            return version_number(self._client.last_version(RESERVATIONS)) < version_number(version)
        except BerthError:
            return False

    def begin_reservation(self, uid: str) -> None:
        """Reset the failure count of a Reservation that is new or has a new spec."""
        self._engine.workers.forget_failures(Key(KeyKind.RESERVATION, uid))

    def note_listed(self) -> None:
        """Record that kopf has listed all Reservations and watches them now."""
        self._engine.note_listed()

    def _note_not_gated(self, pod: Pod) -> None:
        self._engine.note_not_gated(pod)

    def _refetch(self, reservation: Reservation) -> None:
        """Fetch a Reservation into the cache; the watch reports one that is gone."""
        name, namespace = reservation.metadata.name, reservation.metadata.namespace
        with suppress(NotFoundError):
            body = self._client.within(REFETCH_SECONDS).get(RESERVATIONS, name, namespace=namespace)
            self._cache.put_reservation(read_reservation(body))

    def _answer_probe(self, asked: Literal["healthy", "ready"]) -> Answer:
        """Answer a probe with health, readiness, leadership and what readiness waits for."""
        kopf_answers = self._kopf_loop is not None and loop_answers(self._kopf_loop, _LOOP_SECONDS)
        reasons = (
            "" if kopf_answers else "the event loop of kopf does not answer",
            self._engine.why_not_serving(),
            self._webhook.why_not_serving(self._clock.now()),
            self.silence.why_not_ready(),
        )
        state = {
            "healthy": kopf_answers and self._engine.healthy and not self.silence.why_unhealthy(),
            "ready": not any(reasons),
            "leading": self._engine.leading,
            "waitsFor": [reason for reason in reasons if reason],
        }
        return Answer.from_state(state, good=bool(state[asked]))

    async def drain(self) -> None:
        """Stop acting, release the lease, and keep answering reviews for a while."""
        _LOG.info(telemetry.DRAINING)
        # First no new reviews on old connections, then the Lease: a replica that is ready takes both over.
        self._webhook.drain()
        await asyncio.to_thread(self._engine.stop_acting)
        # API servers send reviews to this replica until each of them has seen the endpoints of the Service change.
        # Without a live Reservation the webhook is not registered, so no API server can send a review.
        if self._cache.live_namespaces() or any(capability.answers_always for capability in self._engine.capabilities):
            await asyncio.sleep(self._settings.webhook.drain_seconds)

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._engine.stop)
        if self._webhook_loop.is_alive:
            await self._webhook_loop.run(self._webhook.stop())
        self._webhook_loop.stop()
        for capability in self._engine.capabilities:
            await capability.stop()
        await asyncio.to_thread(self._health.stop)
        self._client.close()
        _LOG.info(telemetry.STOPPED)

    def _renew_certificates(self) -> None:
        """Refresh the shared certificate regularly; serve and register a new one."""
        while not self._stopping.wait(self._keeper.check_seconds):
            try:
                is_changed = self._keeper.refresh(self._clock.now())
            except RetryableError as error:
                fields = {telemetry.KEY_ACTION: "renew certificate", telemetry.KEY_ERROR: str(error)}
                _LOG.warning(telemetry.ACTION_FAILED, **fields)
                continue
            except Exception:  # noqa: BLE001 - logged; the present certificate still serves
                _LOG.exception(telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "renew certificate"})
                continue
            if is_changed:
                # Serving the new certificate first is safe: its authority was announced long before (see
                # `certificates`). The registration is then compared with the bundle, which may also name an authority
                # that signs nothing yet.
                self._webhook_loop.call_soon(self._webhook.reload_certificate)
                self._queue.add(SCOPE_KEY)
