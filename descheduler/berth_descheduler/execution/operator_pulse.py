"""Owns the answer to whether the operator is alive at this moment, which an eviction needs beside a proven place.

It does not clear up after an operator that is not: `operator_watch` does.

The proof of the hand-over path stays in a Reservation's status when the operator dies, and a replacement that is made
while nobody gates it loses its place. The Lease tells it apart: a live operator renews it often, and notes on it
whether pods come back gated at present.
"""

import threading
from typing import Final

from berth_core.clock import Clock, parse_timestamp
from berth_core.errors import BerthError
from berth_core.labels import PATH_ANNOTATION, PATH_PROVEN
from berth_core.names import OPERATOR_LEASE, OPERATOR_RENEWALS
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.leases import Lease, LeaseSpec
from berth_kube.resources import LEASES

_ALIVE_SHARE: Final = 2.5 / OPERATOR_RENEWALS
"""Of the Lease's duration: a renewal that is due may be missed once, and the next one be late."""
_LOOK_SECONDS: Final = 0.2
"""Evictions closer together than this are decided on one look."""


class OperatorPulse:
    """Reads the operator's Lease when asked; thread-safe.

    A Lease that is seen to change was renewed after the last look, by our own clock. How long after, only the times in
    it can tell; one from the future is taken for a clock that differs, and then the last look is what counts.
    """

    def __init__(self, client: KubeClient, clock: Clock, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._lock = threading.Lock()
        self._looked_at: float | None = None
        self._spec: LeaseSpec | None = None
        self._proven = False
        self._renewed_at: float | None = None
        self._failure = ""

    def why_silent(self) -> str:
        """Return why no pod may be evicted now, "" if the operator is alive."""
        with self._lock:
            now = self._clock.monotonic()
            if self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS:
                self._look(now)
                self._looked_at = now
            return self._failure or self._judge(now)

    def _look(self, now: float) -> None:
        try:
            lease = self._client.get(LEASES, OPERATOR_LEASE, namespace=self._namespace, type=Lease)
        except NotFoundError:
            self._failure = "no operator has ever run here; is berth-operator running?"
            return
        except BerthError as error:
            self._failure = f"it is not known whether the operator is alive: {error}"
            return
        self._failure = ""
        self._proven = lease.metadata.annotations.get(PATH_ANNOTATION) == PATH_PROVEN
        if lease.spec != self._spec:
            told, seen = self._told_renewal(lease.spec, now), self._looked_at
            self._renewed_at = max((at for at in (told, seen) if at is not None), default=None)
            self._spec = lease.spec

    def _told_renewal(self, spec: LeaseSpec, now: float) -> float | None:
        """Return when the Lease was renewed by its own words, None if they cannot be true by our clock."""
        if spec.renew_time is None:
            return None
        age_seconds = (self._clock.now() - parse_timestamp(spec.renew_time)).total_seconds()
        return now - age_seconds if age_seconds >= 0 else None

    def _judge(self, now: float) -> str:
        spec = self._spec
        if spec is None or not spec.holder_identity:
            return "no operator holds its lease; is berth-operator running?"
        if self._renewed_at is None:
            return "the operator has not yet been seen to renew its lease"
        silent_seconds = now - self._renewed_at
        if silent_seconds > (spec.lease_duration_seconds or 0) * _ALIVE_SHARE:
            return f"the operator has been silent for {silent_seconds:.0f} s; is berth-operator running?"
        return "" if self._proven else "the operator's dry-run pods do not come back gated now; is its webhook up?"
