"""The last result of a probe for each Reservation."""

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from berth_core import ConditionType, Reservation
from berth_operator.reservation.observation import ProbeResult
from berth_operator.reservation.store.versions import version_of


@dataclass(slots=True)
class ProbeResults:
    """Results of probes, per Reservation and for the path that all share.

    The replica that answered the last gated probe knew every Reservation up to a version, and the webhook was
    registered for certain namespaces: a Reservation that is no newer and in one of these needs no probe of its own.
    """

    path: ProbeResult | None = None
    """Whether the shared path works; None for unknown."""

    _probes: dict[str, ProbeResult] = field(default_factory=dict)
    _probed_at: dict[str, float] = field(default_factory=dict)
    _proven_version: float = -1.0
    _registered: AbstractSet[str] = frozenset()

    def put(self, uid: str, result: ProbeResult) -> None:
        """Record a probe's result, and count the failures in a row."""
        known_probe = self._probes.get(uid)
        failures = 0 if result.gated else (known_probe.failures if known_probe else 0) + 1
        self._probes[uid] = replace(result, failures=failures)
        self._probed_at[uid] = time.monotonic()

    def put_shared(self, probed: Reservation, registered: AbstractSet[str]) -> None:
        """Record a gated probe, made while the webhook covered these namespaces."""
        version = version_of(probed.metadata)
        if version >= self._proven_version or not registered <= self._registered:
            self._proven_version, self._registered = version, registered

    def forget(self, uid: str) -> None:
        self._probes.pop(uid, None)
        self._probed_at.pop(uid, None)

    def put_path(self, result: ProbeResult | None) -> bool:
        """Record whether the shared path works; return whether that changed."""
        is_changed = (result and result.gated) != (self.path and self.path.gated)
        self.path = result
        if result is None:
            self._proven_version, self._registered = -1.0, frozenset()
        return is_changed

    def result_for(self, reservation: Reservation) -> ProbeResult | None:
        """Return the result of a Reservation's own probe, of another's that covers it, or of an earlier process."""
        uid = reservation.metadata.uid
        if self.path is None:
            return self._probes.get(uid)
        if not self.path.gated:
            return self.path
        if uid not in self._probes and (
            self._is_covered(reservation) or reservation.condition(ConditionType.HANDOVER_READY)
        ):
            self._probes[uid] = ProbeResult(gated=True, message=self.path.message)
        return self._probes.get(uid)

    def aged_result_for(self, reservation: Reservation, now: float) -> ProbeResult | None:
        result = self.result_for(reservation)
        probed_at = self._probed_at.get(reservation.metadata.uid)
        return (
            result
            if result is None or result.gated or probed_at is None
            else replace(result, age_seconds=now - probed_at)
        )

    def _is_covered(self, reservation: Reservation) -> bool:
        meta = reservation.metadata
        return meta.namespace in self._registered and version_of(meta) <= self._proven_version
