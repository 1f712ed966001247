"""The webhook's registration: its existence, namespaces and address."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from berth_core import QUEUE_WEBHOOK_CONFIGURATION, WEBHOOK_CONFIGURATION
from berth_kube import MUTATING_WEBHOOKS, AlreadyExistsError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.reconcile import ANY_REGISTRATION, build_queue_registration, build_webhook_configuration

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration as written; API servers use it a moment later."""

    namespaces: frozenset[str] = frozenset()
    digest: str = ANY_REGISTRATION


class WebhookRegistration:
    """Registers the namespaces with live Reservations; no registration without any."""

    def __init__(
        self,
        client: KubeClient,
        *,
        client_config: Callable[[], Mapping[str, Any]],
        live_namespaces: Callable[[], frozenset[str]],
        own_namespace: str,
        timeout_seconds: int,
    ) -> None:
        self._client = client
        self._client_config = client_config
        self._live_namespaces = live_namespaces
        self._own_namespace = own_namespace
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._written: dict[str, Any] | None = None
        self._stale = True
        self._queues_written: dict[str, Any] | None = None
        self._has_put_queues = False
        self._had_queues = True

    def ensure(self, namespace: str) -> None:
        """Register a namespace with a live Reservation."""
        with self._lock:
            if self._written is None or namespace not in _covered(self._written):
                self._write(self._live_namespaces() | {namespace})

    @property
    def registered(self) -> Registered:
        """Return what was written last."""
        with self._lock:
            if self._written is None:
                return Registered()
            return Registered(frozenset(_covered(self._written)), _digest(self._written))

    def reconcile(self) -> bool:
        """Reconcile the registration with the live Reservations; return whether it changed."""
        with self._lock:
            before, namespaces = self._written, self._live_namespaces()
            if namespaces:
                self._write(namespaces)
            else:
                self._remove()
            return self._written != before

    def refresh(self) -> None:
        """Write the registration again, even if it seems unchanged."""
        with self._lock:
            self._stale = True
        self.reconcile()

    def put_queues(self, namespaces: frozenset[str]) -> None:
        """Register the gate of queues for these namespaces; none remove the registration."""
        with self._lock:
            body = None
            if namespaces:
                body = build_queue_registration(self._client_config(), namespaces, self._timeout_seconds)
            if self._has_put_queues and body == self._queues_written:
                return
            self._had_queues = self._put(QUEUE_WEBHOOK_CONFIGURATION, body)
            if body != self._queues_written:
                _LOG.info(telemetry.QUEUE_SCOPE_CHANGED, **{telemetry.KEY_NAMESPACES: sorted(namespaces)})
            self._queues_written, self._has_put_queues = body, True

    @property
    def has_no_queues(self) -> bool:
        """Return whether the gate of queues was found unregistered when it was written last."""
        with self._lock:
            return not self._had_queues

    def forget_queues(self) -> None:
        """Write the registration of queues again the next time: another replica or account may have changed it."""
        with self._lock:
            self._has_put_queues = False

    def _put(self, name: str, body: Mapping[str, Any] | None) -> bool:
        """Create or replace a registration, None deletes it; return whether there was or is one."""
        if body is None:
            with suppress(NotFoundError):
                self._client.delete(MUTATING_WEBHOOKS, name)
                return True
            return False
        try:
            self._client.create(MUTATING_WEBHOOKS, body)
        except AlreadyExistsError:
            self._client.merge_patch(MUTATING_WEBHOOKS, name, {"webhooks": body["webhooks"]})
        return True

    def _write(self, namespaces: frozenset[str]) -> None:
        body = build_webhook_configuration(
            client_config=self._client_config(),
            namespaces=namespaces,
            own_namespace=self._own_namespace,
            timeout_seconds=self._timeout_seconds,
        )
        changed = body != self._written
        if not changed and not self._stale:
            return
        self._put(WEBHOOK_CONFIGURATION, body)
        self._written, self._stale = body, False
        if changed:
            _LOG.info(telemetry.SCOPE_CHANGED, **{telemetry.KEY_NAMESPACES: sorted(namespaces)})

    def _remove(self) -> None:
        try:
            self._client.delete(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)
        except NotFoundError:
            pass
        else:
            _LOG.info(telemetry.SCOPE_CHANGED, **{telemetry.KEY_NAMESPACES: []})
        self._written = None


def _covered(body: Mapping[str, Any]) -> list[str]:
    """Return the namespaces that a registration covers for hand-overs."""
    values: list[str] = body["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
    return values


def _digest(body: Mapping[str, Any]) -> str:
    """Return the digest by which probes recognise a registration in use."""
    digest: str = body["webhooks"][1]["objectSelector"]["matchExpressions"][1]["values"][0]
    return digest
