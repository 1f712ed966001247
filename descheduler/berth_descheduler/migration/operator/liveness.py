"""Whether an operator is alive that hands places over.

An eviction needs a live operator beside a proven place: the proof stays in a Reservation's status when the operator
dies, and a replacement that no webhook gates loses its place. A live operator renews its Lease often, and notes on it
whether pods come back gated at present.
"""

import threading
from typing import Final

from berth_core import (
    OPERATOR_LEASE,
    OPERATOR_RENEWALS,
    PATH_ANNOTATION,
    PATH_PROVEN,
    BerthError,
    Clock,
    parse_timestamp,
)
from berth_kube import LEASES, KubeClient, Lease, LeaseSpec, NotFoundError

_ALIVE_SHARE: Final = 3.75 / OPERATOR_RENEWALS
"""The share of a Lease's duration after which the operator counts as silent: two renewals may be missed, and the next
be late."""

_LOOK_SECONDS: Final = 0.2
"""Evictions closer together than this share one read of the Lease."""


class OperatorLiveness:
    """Reads the operator's Lease when asked; thread-safe.

    A changed Lease was renewed after the last read, by our own clock. How long after, only its own times say; a time
    from the future means that the clocks differ, and then the time of the last read counts.
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

    def problem(self) -> str:
        """Return why no pod may be evicted now, "" if the operator is alive and proves the hand-over path."""
        # The lock is held during the call: evictions that ask meanwhile share its answer instead of reading each for
        # itself.
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
            reported_at, looked_at = self._reported_renewal(lease.spec, now), self._looked_at
            self._renewed_at = max(
                (seen_at for seen_at in (reported_at, looked_at) if seen_at is not None), default=None
            )
            self._spec = lease.spec

    def _reported_renewal(self, spec: LeaseSpec, now: float) -> float | None:
        """Return the Lease's own renewal time, None if our clock contradicts it."""
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
        if self._proven:
            return ""
        return "the operator's dry-run pods do not come back gated now; is its webhook up, or is it too old?"
