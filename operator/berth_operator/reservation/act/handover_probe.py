"""Probes of the path of hand-overs, from the creation of a pod to the API server's answer.

A dry-run pod must come back gated. Each Reservation is probed once, because its path has parts of its own: its
namespace in the webhook's registration, and that the answering replica has heard of it. An API server hears of a
registration late: a probe names the one that it must come back by, so that none is taken for in use before it is.
Replicas hear of Reservations in order, so a probe for one speaks for all that are no newer and whose namespaces were
registered. What all share, that the API server reaches the webhook and trusts it, is probed every two seconds for the
newest unproven Reservation, else for each in turn. A failed probe is repeated with the registration repaired; a second
failure stands for all, until probes come back gated again.
"""

import bisect
import threading
from collections.abc import Callable
from typing import Final

import structlog

from berth_core import RESERVATION_LABEL, BerthError, Pod, Reservation, RetryableError, SlotState
from berth_kube import PODS, KubeError
from berth_operator import metrics, telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.manifests import ANY_REGISTRATION, build_probe
from berth_operator.reservation.observation import ProbeResult
from berth_operator.reservation.pod_state import holds_our_gate
from berth_operator.reservation.store.versions import version_of

_LOG = structlog.get_logger(__name__)

_PROBE_SECONDS: Final = 2.0
_DOUBT_SECONDS: Final = 0.3
"""Until the next probe after a failed one, or after the first gated one."""
_UNPROVEN_SECONDS: Final = 0.5
"""Until the next probe while Reservations are unproven, for one probe decides for all of them."""
_PROPAGATION_SECONDS: Final = (0.1, 0.1, 0.2)
"""Pauses between the probes for one Reservation: API servers use a registration some time after it is written, and
nothing reports when (kubernetes/kubernetes#119180)."""
_TRIES: Final = 2
"""This many equal probes in a row decide whether the path works."""

GATED: Final = "a dry-run pod came back gated"
NOT_IN_USE: Final = "the API server does not use the webhook's registration as written yet"
NOT_GATED: Final = "a dry-run pod came back without the gate; is the webhook up?"


class HandoverProbe:
    """Probes the hand-over path, for one Reservation on request and for all of them periodically; thread-safe."""

    def __init__(self, context: Context, scope: WebhookRegistration) -> None:
        self._client = context.client
        self._cache = context.cache
        self._scope = scope
        self._settings = context.settings.placeholders
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._last_uid = ""
        self._in_a_row = 0
        self._gated_last = False
        self._on_change: Callable[[], None] = lambda: None

    @property
    def proven(self) -> bool:
        """Return whether this process's last probe came back gated."""
        return self._gated_last

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a callback for changes of `proven`."""
        self._on_change = listener

    def probe(self, reservation: Reservation) -> None:
        """Probe for a Reservation and record the result.

        Raises the API server's error. Raises `RetryableError`, with nothing recorded, where the API server does not use
        the registration yet.
        """
        try:
            # Registered first: without its namespace in the webhook's selector no API server would send the probe.
            self._scope.ensure(reservation.metadata.namespace)
            is_gated = self._is_in_use_for(reservation)
        except KubeError as error:
            self._cache.put_probe(reservation.metadata.uid, ProbeResult(gated=False, message=str(error)))
            raise
        self._cache.put_probe(
            reservation.metadata.uid, ProbeResult(gated=is_gated, message=GATED if is_gated else NOT_GATED)
        )
        if is_gated and not self._gated_last:
            self.probe_soon()

    def probe_soon(self) -> None:
        """Wake `run` for another probe."""
        self._wake.set()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()
        self._wake.set()

    def run(self, leads: Callable[[], bool]) -> None:
        """Probe the path periodically while this replica leads, until stopped."""
        while not self._stop.is_set():
            if not leads():
                self.reset()
                self._stop.wait(_DOUBT_SECONDS)
                continue
            self.probe_path()
            self._wake.wait(self._pause_seconds())
            self._wake.clear()

    def reset(self) -> None:
        """Forget the results: this replica does not lead."""
        self._last_uid, self._in_a_row = "", 0
        self._set_gated(gated=False)
        self._cache.put_path(None)

    def probe_path(self) -> None:
        """Probe for the next Reservation; several equal results in a row decide for all Reservations."""
        unproven = self._newest_unproven()
        reservation = unproven or self._next()
        if reservation is None:
            return
        try:
            is_gated, text = self._is_gated(reservation, ANY_REGISTRATION), ""
            if is_gated and unproven is not None:
                self._proves_registration(unproven)
        except RetryableError:
            return  # unknown; while the API server is down, nothing in it can change
        except BerthError as error:
            is_gated, text = False, str(error)
        self._in_a_row = self._in_a_row + 1 if is_gated is self._gated_last else 1
        self._set_gated(gated=is_gated)
        if not is_gated:
            self._repair_registration()
        known_path = self._cache.path()
        if known_path is None and is_gated:
            self._publish(ProbeResult(gated=True, message=GATED, of_path=True))
        elif self._in_a_row >= _TRIES and (known_path is None or known_path.gated is not is_gated):
            self._publish(ProbeResult(gated=is_gated, message=GATED if is_gated else text or NOT_GATED, of_path=True))

    def _pause_seconds(self) -> float:
        """Return the pause before the next probe, shorter while Reservations are unproven."""
        if not self._is_settled():
            return _DOUBT_SECONDS
        return _UNPROVEN_SECONDS if self._newest_unproven() is not None else _PROBE_SECONDS

    def _is_settled(self) -> bool:
        """Return whether the last probe and the recorded state are gated."""
        known_path = self._cache.path()
        return self._gated_last and known_path is not None and known_path.gated

    def _publish(self, result: ProbeResult) -> None:
        self._cache.put_path(result)
        metrics.PATH_PROVEN.set(int(result.gated))
        log = _LOG.info if result.gated else _LOG.warning
        log(telemetry.PATH_PROVEN if result.gated else telemetry.PATH_BROKEN, **{telemetry.KEY_MESSAGE: result.message})

    def _set_gated(self, *, gated: bool) -> None:
        is_changed, self._gated_last = gated is not self._gated_last, gated
        if is_changed:
            self._on_change()

    def _repair_registration(self) -> None:
        # Another writer may have changed or deleted it.
        try:
            self._scope.refresh()
        except BerthError as error:
            _LOG.warning(telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "register", telemetry.KEY_ERROR: str(error)})

    def _newest_unproven(self) -> Reservation | None:
        """Return the newest unproven Reservation in a registered namespace, whose probe proves all older ones."""
        registered = self._scope.registered.namespaces
        unproven = self._cache.unproven()
        waiting_reservations = (reservation for reservation in unproven if reservation.metadata.namespace in registered)
        return max(waiting_reservations, key=lambda reservation: version_of(reservation.metadata), default=None)

    # One without a held slot needs a fresh result only when it gets its first.
    def _next(self) -> Reservation | None:
        """Return the next live Reservation in turn, of those with a held slot if there are any."""
        live_by_uid = {
            reservation.metadata.uid: reservation for reservation in self._cache.reservations() if reservation.is_live
        }
        if not live_by_uid:
            return None
        uids = sorted(uid for uid, reservation in live_by_uid.items() if _offers_slot(reservation)) or sorted(
            live_by_uid
        )
        self._last_uid = uids[bisect.bisect_right(uids, self._last_uid) % len(uids)]
        return live_by_uid[self._last_uid]

    def _is_in_use_for(self, reservation: Reservation) -> bool:
        """Return whether the registration gates pods of a Reservation.

        Raises `RetryableError` where the registration is too recent. The first failure is repeated in any case: another
        replica may have to hear of the Reservation.
        """
        if self._proves_registration(reservation):
            return True
        for pause in _PROPAGATION_SECONDS:
            self._stop.wait(pause)
            if self._proves_registration(reservation):
                return True
            if not self._is_gated(reservation, ANY_REGISTRATION):
                return False
        self._repair_registration()
        raise RetryableError(NOT_IN_USE)

    def _proves_registration(self, reservation: Reservation) -> bool:
        """Return whether the registration as last written gates a dry-run pod."""
        registered = self._scope.registered
        is_gated = self._is_gated(reservation, registered.digest)
        if is_gated:
            self._cache.put_shared_probe(reservation, registered.namespaces)
        return is_gated

    def _is_gated(self, reservation: Reservation, registration: str) -> bool:
        """Return whether a dry-run pod comes back gated for a Reservation."""
        body = build_probe(reservation, registration, self._settings)
        pod = self._client.create(PODS, body, namespace=self._settings.namespace, dry_run=True, type=Pod)
        return holds_our_gate(pod) and pod.metadata.labels.get(RESERVATION_LABEL) == reservation.metadata.uid


def _offers_slot(reservation: Reservation) -> bool:
    return any(slot.state is SlotState.HELD for slot in reservation.status.slots)
