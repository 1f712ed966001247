"""Registers the webhook with the API server for the namespaces that need it."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from berth_core import WEBHOOK_CONFIGURATION
from berth_kube import MUTATING_WEBHOOKS, AlreadyExistsError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.manifests import ANY_REGISTRATION, build_webhook_configuration

_REFRESHES_UNTIL_REMOVAL: Final = 10
"""After so many refreshes a registration that is known to be absent is removed again."""

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration as written; API servers use it a moment later."""

    namespaces: frozenset[str] = frozenset()
    digest: str = ANY_REGISTRATION


class WebhookRegistration:
    """Registers the namespaces with live Reservations, and removes the registration while there are none."""

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
        self.client_config = client_config
        """Returns how API servers reach the webhook."""
        self._live_namespaces = live_namespaces
        self._own_namespace = own_namespace
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._written: dict[str, Any] | None = None
        self._stale = True
        self._is_absent = False
        """Whether the API server had no registration when it was last asked to remove it."""
        self._refreshes = 0

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
        """Reconcile the registration with the live Reservations; return whether it changed.

        A namespace that has no more of them beside others that do stays until the next refresh: API servers need a
        while for each change, and what is unproven is proven anew by it.
        """
        with self._lock:
            written_before, namespaces = self._written, self._live_namespaces()
            if not namespaces:
                self._remove()
            elif written_before is None or self._stale:
                self._write(namespaces)
            else:
                self._write(namespaces.union(_covered(written_before)))
            return self._written != written_before

    def refresh(self, *, everything: bool = False) -> None:
        """Write the registration again, even if it seems unchanged, for live Reservations only.

        Without one, a registration that is known to be absent is removed again with `everything` and from time to time:
        a backup may bring it back.
        """
        with self._lock:
            self._stale = True
            self._refreshes += 1
            if everything or self._refreshes % _REFRESHES_UNTIL_REMOVAL == 0:
                self._is_absent = False
        self.reconcile()

    def _write(self, namespaces: frozenset[str]) -> None:
        body = build_webhook_configuration(
            client_config=self.client_config(),
            namespaces=namespaces,
            own_namespace=self._own_namespace,
            timeout_seconds=self._timeout_seconds,
        )
        is_changed = body != self._written
        if not is_changed and not self._stale:
            return
        self._is_absent = False  # before the call: it may succeed although its answer is lost
        put_webhooks(self._client, WEBHOOK_CONFIGURATION, body, was_there=self._written is not None)
        self._written, self._stale = body, False
        if is_changed:
            _LOG.info(telemetry.SCOPE_CHANGED, **{telemetry.KEY_NAMESPACES: sorted(namespaces)})

    def _remove(self) -> None:
        if self._is_absent:
            return
        try:
            self._client.delete(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)
        except NotFoundError:
            pass
        else:
            _LOG.info(telemetry.SCOPE_CHANGED, **{telemetry.KEY_NAMESPACES: []})
        self._written, self._is_absent = None, True


def put_webhooks(client: KubeClient, name: str, body: Mapping[str, Any] | None, *, was_there: bool) -> bool:
    """Create or replace a registration, None deletes it; return whether there was or is one."""
    if body is None:
        with suppress(NotFoundError):
            client.delete(MUTATING_WEBHOOKS, name)
            return True
        return False
    # A merge patch replaces a list as a whole (RFC 7386), so entries that others have added go, too.
    change = {"webhooks": body["webhooks"]}
    if was_there:
        with suppress(NotFoundError):
            client.merge_patch(MUTATING_WEBHOOKS, name, change)
            return True
    try:
        client.create(MUTATING_WEBHOOKS, body)
    except AlreadyExistsError:
        client.merge_patch(MUTATING_WEBHOOKS, name, change)
    return True


def _covered(body: Mapping[str, Any]) -> list[str]:
    """Return the namespaces that a registration covers for hand-overs."""
    values: list[str] = body["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
    return values


def _digest(body: Mapping[str, Any]) -> str:
    """Return the digest by which probes recognise a registration in use."""
    digest: str = body["webhooks"][1]["objectSelector"]["matchExpressions"][1]["values"][0]
    return digest
