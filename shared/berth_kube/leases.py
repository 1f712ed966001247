"""Leader election by a Lease object, after the rules of client-go (tools/leaderelection/leaderelection.go).

A lease counts as expired if it has not changed for its duration by our own clock: clocks of different machines are
never compared. A holder gives up after two thirds of the duration without a renewal, before any other process may take
the lease.
"""

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from berth_core import Clock, ObjectMeta, PermanentError, SystemClock, format_precise_timestamp
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from berth_kube.resources import LEASES
from berth_kube.retries import CHANCE

_LOG = logging.getLogger(__name__)

_BELIEF_SHARE: Final = 2 / 3
"""As client-go's renew deadline of 10 s in a lease of 15 s."""
_CALLS_PER_DURATION: Final = 3
_RENEWALS_PER_DURATION: Final = 2.5
"""Each renewal is a write to etcd. After one that fails, a quarter of the duration is left to try again."""
_TRIES_PER_DURATION: Final = 7.5
_TRIES_PER_DURATION_AFTER_FAILURE: Final = 15


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Lease that the election uses."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True):
    """A Lease as the API server holds it."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True)
class _Observation:
    """A version of the lease, and when our clock first saw it."""

    spec: LeaseSpec
    since: float


@dataclass(frozen=True, slots=True)
class _Try:
    """The result of one try to take the lease."""

    won: bool
    error: KubeError | None = None
    """Set if the holder of the lease is unknown."""


class Heartbeats:
    """Records when each part of a program last worked; thread-safe.

    A lease is renewed by a thread of its own, whatever the other threads do. So that a stuck program does not look
    alive for ever, its lease is renewed only while none of its parts has been silent for too long. A part counts from
    its first beat.
    """

    def __init__(self, clock: Clock, *, seconds: float = 60.0) -> None:
        """`seconds` is the longest silence, far longer than load delays a part."""
        self._clock = clock
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def beat(self, part: str) -> None:
        """Record that a part works."""
        self._last[part] = self._clock.monotonic()

    def silent(self) -> tuple[str, ...]:
        """Return the parts that have been silent for too long."""
        now = self._clock.monotonic()
        return tuple(sorted(part for part, last_sign in tuple(self._last.items()) if now - last_sign > self._seconds))


class LeaseHolder:
    """Acquires, renews and releases one lease; concurrent processes need distinct `identity`s."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration_seconds: int = 15,
        clock: Clock | None = None,
    ) -> None:
        # A call that hangs longer than a third of the duration would delay the next try.
        self._client = client.within(duration_seconds / _CALLS_PER_DURATION)
        self._renewals: Callable[[], float] = lambda: _RENEWALS_PER_DURATION
        self._notes: Callable[[], Mapping[str, str | None]] = dict
        self._heartbeats: Heartbeats | None = None
        self._hurry = threading.Event()
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_seconds = duration_seconds
        self._clock = clock or SystemClock()
        self._observation: _Observation | None = None
        self._written: Lease | None = None
        """The lease as this process last wrote it; None where it must be read first."""
        self._renewed_at: float | None = None
        self._stopped = threading.Event()
        self._lost = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> threading.Event:
        """Return the event of a lost lease; `acquire` clears it."""
        return self._lost

    def held(self) -> bool:
        """Return whether no other process can hold the lease now."""
        renewed_at = self._renewed_at
        if renewed_at is None:
            return False
        return self._clock.monotonic() - renewed_at < self._duration_seconds * _BELIEF_SHARE

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lease and renew it in a thread; return whether that came in time.

        A timeout of 0 tries once, None waits until `release`. A timeout that is no shorter than the lease's duration is
        extended until a lease that is not renewed expires: its holder may have asked for a longer duration. Raises a
        permanent KubeError, and after the timeout the last try's error: a silent server says nothing about other
        holders.
        """
        if self._thread is not None and self._thread.is_alive():
            if not self._lost.is_set():
                return self.held()
            self._thread.join()
        self._stopped.clear()
        self._lost.clear()
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        seen_observation: _Observation | None = None
        while not (claim := self._try_to_claim()).won:
            seen_observation = seen_observation or self._observation
            # client-go's retry period of 2 s in 15 s, with its jitter factor of 1.2 (`tools/leaderelection`).
            wait_seconds = self._duration_seconds / _TRIES_PER_DURATION * CHANCE.uniform(1, 1.2)
            if deadline is not None:
                is_prolonged = seen_observation is self._observation and (timeout or 0.0) >= self._duration_seconds
                until = max(deadline, self._expiry(seen_observation)) if is_prolonged else deadline
                wait_seconds = min(wait_seconds, until - self._clock.monotonic())
            if wait_seconds <= 0 and claim.error is not None:
                raise claim.error
            if wait_seconds <= 0 or self._stopped.wait(wait_seconds):
                return False
        self._thread = threading.Thread(target=self._keep, name=f"lease {self._name}", daemon=True)
        self._thread.start()
        return True

    def publish(
        self,
        notes: Callable[[], Mapping[str, str | None]],
        *,
        renewals: Callable[[], float],
        heartbeats: Heartbeats | None = None,
    ) -> None:
        """Set the annotations `notes` and how many `renewals` there are per duration, asked after each renewal.

        With `heartbeats` the lease is neither taken nor renewed while a part of the program is silent.
        """
        self._notes = notes
        self._heartbeats = heartbeats
        self._renewals = renewals

    def renew_soon(self) -> None:
        """Renew a held lease now, so that its annotations are up to date."""
        self._hurry.set()

    def look(self) -> None:
        """Read the lease without taking it; the silence of its holder counts from now."""
        try:
            lease = self._read()
        except KubeError as error:
            _LOG.info("the lease %s cannot be read yet: %s", self._name, error)
            return
        if lease is not None:
            self._may_take(lease.spec)

    def release(self) -> None:
        """Stop renewing or waiting, and give the lease back, so that the next holder need not wait."""
        self._stopped.set()
        self._hurry.set()
        if self._thread is not None:
            # A renewal that is under way could otherwise be written after the lease was given back.
            self._thread.join(self._duration_seconds)
            self._thread = None
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            self._give_back()
        except KubeError as error:
            _LOG.info("the lease %s is left to expire: %s", self._name, error)

    def _try_to_claim(self) -> _Try:
        """Return whether the lease is ours now, and the error if the server does not answer."""
        try:
            return _Try(won=self._claim())
        except KubeError as error:
            # A missing right or a Lease that cannot exist is for people to mend; waiting would only hide it.
            if isinstance(error, PermanentError):
                raise
            _LOG.warning("cannot take the lease %s/%s yet: %s", self._namespace, self._name, error)
            return _Try(won=False, error=error)

    def _keep(self) -> None:
        """Renew until stopped, or until the lease is lost."""
        renewal_due = self._clock.monotonic() + self._duration_seconds / self._renewals()
        while not self._is_stopped_within(renewal_due - self._clock.monotonic()):
            # Counted from the start of the call: a slow API server must not make renewals rarer, too.
            started = self._clock.monotonic()
            # None is begun later: with the time that its calls may take, another process could have the lease by then.
            if self.held() and self._renew():
                renewal_due = started + self._duration_seconds / self._renewals()
                continue
            # One failed renewal loses nothing: the Lease is ours until two thirds of its duration are over.
            if not self.held():
                self._renewed_at = None
                self._lost.set()
                _LOG.warning("lost the lease %s/%s", self._namespace, self._name)
                return
            renewal_due = self._clock.monotonic() + self._duration_seconds / _TRIES_PER_DURATION_AFTER_FAILURE

    def _is_stopped_within(self, seconds: float) -> bool:
        """Wait, or less if a renewal is urgent; return whether renewing must end."""
        self._hurry.wait(max(0.0, seconds))
        self._hurry.clear()
        return self._stopped.is_set()

    def _renew(self) -> bool:
        """Return whether the lease was renewed; a lease that another process holds is lost at once."""
        try:
            renewed = self._claim(is_renewal=True)
        except KubeError as error:
            _LOG.warning("cannot renew the lease %s/%s: %s", self._namespace, self._name, error)
            return False
        # Another holder's name in it: it was taken from us, so the time that we still believed in counts no more.
        if not renewed and self._observation and self._observation.spec.holder_identity != self._identity:
            self._renewed_at = None
        return renewed

    def _claim(self, *, is_renewal: bool = False) -> bool:
        """Take or renew the lease; return whether it is ours, which it is not after a lost write race.

        A renewal is not written once its time is over.
        """
        silent = self._heartbeats.silent() if self._heartbeats is not None else ()
        if silent:
            _LOG.warning("the lease %s is left to expire: %s does not answer", self._name, " and ".join(silent))
            return False
        if self._renews_unread():
            return True
        started = self._clock.monotonic()
        try:
            lease = self._read()
            if is_renewal and not self.held():
                return False
            if lease is None:
                new_lease = self._client.create(LEASES, self._new_lease(), type=Lease)
            elif self._may_take(lease.spec):
                new_lease = self._write(lease, self._claim_spec(lease.spec))
            else:
                return False
        except (ConflictError, AlreadyExistsError):
            return False
        self._note_written(new_lease, started)
        return True

    def _note_written(self, lease: Lease, started: float) -> None:
        """Record our lease, renewed by a call that started then."""
        self._written, self._observation = lease, _Observation(lease.spec, self._clock.monotonic())
        # The time before the request: the lease may have been written at any moment since.
        self._renewed_at = started

    def _renews_unread(self) -> bool:
        """Return whether the lease was renewed as this process last wrote it, without reading it.

        Its resourceVersion is the precondition: a lease that anything else has written since is read first. client-go
        renews on the same fast path.
        """
        written_lease, self._written = self._written, None
        if written_lease is None or not self.held():
            return False
        started = self._clock.monotonic()
        try:
            new_lease = self._write(written_lease, self._claim_spec(written_lease.spec))
        except (ConflictError, NotFoundError):
            return False
        self._note_written(new_lease, started)
        return True

    def _may_take(self, spec: LeaseSpec) -> bool:
        """Return whether the lease is free, ours, or expired: unchanged for its duration."""
        now = self._clock.monotonic()
        if self._observation is None or self._observation.spec != spec:
            self._observation = _Observation(spec, now)
        # A released Lease has an empty holder, as in client-go's `release`.
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return True
        return now >= self._expiry(self._observation)

    def _expiry(self, seen: _Observation | None) -> float:
        """Return when a lease expires unless it is renewed, in monotonic seconds."""
        if seen is None:
            return -math.inf
        return seen.since + (seen.spec.lease_duration_seconds or self._duration_seconds)

    def _read(self) -> Lease | None:
        """Return the lease, None if there is none yet."""
        try:
            return self._client.get(LEASES, self._name, namespace=self._namespace, type=Lease)
        except NotFoundError:
            return None

    def _write(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        """Write the spec and return the lease; raises ConflictError if it has changed since the read."""
        metadata = {"resourceVersion": lease.metadata.resource_version, "annotations": dict(self._notes())}
        body = {"metadata": metadata, "spec": spec}
        return self._client.merge_patch(LEASES, self._name, body, namespace=self._namespace, type=Lease)

    def _new_lease(self) -> dict[str, Any]:
        """Return the first lease of this name, ours."""
        notes = {key: value for key, value in self._notes().items() if value is not None}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace, "annotations": notes},
            "spec": self._claim_spec(LeaseSpec()),
        }

    def _claim_spec(self, current: LeaseSpec) -> dict[str, Any]:
        """Return the spec that makes the lease ours from now on."""
        now = format_precise_timestamp(self._clock.now())
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration_seconds,
            "renewTime": now,
        }
        if current.holder_identity == self._identity:
            return spec
        # `acquireTime` and `leaseTransitions` change with the holder only, as people and monitoring read them.
        transitions = 0 if current.lease_transitions is None else current.lease_transitions + 1
        return spec | {"acquireTime": now, "leaseTransitions": transitions}

    def _give_back(self) -> None:
        """Remove our name from the lease."""
        lease = self._read()
        if lease is not None and lease.spec.holder_identity == self._identity:
            # The API server takes no duration of 0; client-go writes 1, too.
            self._write(lease, {"holderIdentity": None, "leaseDurationSeconds": 1})
