"""Owns what is known of the hand-over path: of each Reservation by its own probe, and of all that a probe speaks for.

It does not probe: `acting.proofs` does. It is not thread-safe by itself: `picture.cache` guards it.
"""

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from berth_core.reservations import ConditionType, Reservation
from berth_operator.decisions.observation import ProbeResult
from berth_operator.picture.versions import version_of


@dataclass(slots=True)
class ProofBook:
    """Proofs by the uid of their Reservation, and how far the last probe that came back gated speaks for all.

    Whoever answered that probe had heard of every Reservation up to a version, and the webhook was registered for
    certain namespaces: what is no newer and in one of these needs no probe of its own.
    """

    path: ProbeResult | None = None
    """Whether what all Reservations share works, None where it is not known."""

    _probes: dict[str, ProbeResult] = field(default_factory=dict)
    _probed_at: dict[str, float] = field(default_factory=dict)
    _heard_version: float = -1.0
    _registered: AbstractSet[str] = frozenset()

    def put(self, uid: str, result: ProbeResult) -> None:
        """Keep how the last proof of a Reservation's path ended, and how many have failed in a row."""
        known = self._probes.get(uid)
        failures = 0 if result.gated else (known.failures if known else 0) + 1
        self._probes[uid] = replace(result, failures=failures)
        self._probed_at[uid] = time.monotonic()

    def put_shared(self, probed: Reservation, registered: AbstractSet[str]) -> None:
        """Keep that a Reservation's probe came back gated while the webhook was registered for some namespaces."""
        version = version_of(probed.metadata)
        if version >= self._heard_version or not registered <= self._registered:
            self._heard_version, self._registered = version, registered

    def forget(self, uid: str) -> None:
        """Forget a Reservation that is gone."""
        self._probes.pop(uid, None)
        self._probed_at.pop(uid, None)

    def put_path(self, result: ProbeResult | None) -> bool:
        """Keep whether the path that all share works, None where it is not known; tell whether that is news."""
        changed = (result and result.gated) != (self.path and self.path.gated)
        self.path = result
        if result is None:
            self._heard_version, self._registered = -1.0, frozenset()
        return changed

    def proof_of(self, reservation: Reservation) -> ProbeResult | None:
        """Return whether a Reservation's hand-over is proven: by itself, by another's probe, by an earlier process."""
        uid = reservation.metadata.uid
        if self.path is None:
            return self._probes.get(uid)
        if not self.path.gated:
            return self.path
        if uid not in self._probes and (
            self._is_spoken_for(reservation) or reservation.condition(ConditionType.HANDOVER_READY)
        ):
            self._probes[uid] = ProbeResult(gated=True, message=self.path.message)
        return self._probes.get(uid)

    def aged_proof_of(self, reservation: Reservation, now: float) -> ProbeResult | None:
        """Return the proof of a Reservation with its age."""
        proof = self.proof_of(reservation)
        made = self._probed_at.get(reservation.metadata.uid)
        return proof if proof is None or proof.gated or made is None else replace(proof, age_seconds=now - made)

    def _is_spoken_for(self, reservation: Reservation) -> bool:
        meta = reservation.metadata
        return meta.namespace in self._registered and version_of(meta) <= self._heard_version
