"""Whether the program that a run or command is about to wait for is there: the operator, or the descheduler's service.

Each holds a Lease that it renews. A program that has just been installed, restarts, or whose standby is about to take
over is given time; one that is not there is reported within seconds. Clocks are compared only to find out how long to
look: a Lease that changes while it is looked at is alive, whatever its times say.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from berth_core import LEADER_LEASE, OPERATOR_LEASE, Clock, InputError, Pod, first_few, parse_timestamp
from berth_kube import LEASES, PODS, KubeClient, KubeError, Lease, NotFoundError

_LOOK_SECONDS: Final = 0.5
_SHORTEST_SECONDS: Final = 3.0
_RECENT_SECONDS: Final = 60.0
"""A Lease that was renewed no longer ago than this may be that of a program that restarts."""

_RESTART_SECONDS: Final = 15.0
_START_SECONDS: Final = 30.0
"""How long a program may take from its pod's creation to its Lease, once its image is there."""

_RENEWALS: Final = 3
"""A holder renews its Lease at least this often within the Lease's duration."""

_COMPONENT: Final = "app.kubernetes.io/component"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Program:
    """A program of Berth, as the cluster knows it."""

    name: str
    """As sentences have it."""
    lease: str
    component: str
    """The value of the label that the chart puts on its pods."""


OPERATOR: Final = Program("operator", OPERATOR_LEASE, "operator")

SERVICE: Final = Program("descheduler", LEADER_LEASE, "descheduler")


def why_absent(
    client: KubeClient,
    clock: Clock,
    program: Program,
    *,
    namespace: str | None,
    is_stopped: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda _: None,
) -> str:
    """Return that a program is absent and what to do, in a sentence without its full stop; "" once it is there.

    Also returns "" where that cannot be known, for instance without the right to read Leases: `report` then gets the
    reason, without a full stop as well. Without a namespace, a Lease of the program's name in any namespace counts.
    """
    try:
        return _LookAtProgram(client, clock, program, namespace).why_absent(is_stopped)
    except KubeError as error:
        report(f"it is not known whether the {program.name} is at work: {error}")
        return ""


class _LookAtProgram:
    """One look at a program, which takes as long as it needs to be sure."""

    def __init__(self, client: KubeClient, clock: Clock, program: Program, namespace: str | None) -> None:
        self._client = client
        self._clock = clock
        self._program = program
        self._namespace = namespace
        self._first: dict[str, str | None] = {}
        """The `renewTime` with which each Lease was first seen, by namespace."""

    def why_absent(self, is_stopped: Callable[[], bool]) -> str:
        began = self._clock.monotonic()
        while True:
            leases = self._read()
            if any(map(self._is_alive, leases)) or is_stopped():
                return ""
            if self._clock.monotonic() - began >= self._patience_seconds(leases):
                return self._in_words(leases)
            self._clock.sleep(_LOOK_SECONDS)

    def _read(self) -> Sequence[Lease]:
        lease_name = self._program.lease
        if self._namespace is None:
            return self._client.list(LEASES, field_selector=f"metadata.name={lease_name}", type=Lease).items
        try:
            return (self._client.get(LEASES, lease_name, namespace=self._namespace, type=Lease),)
        except NotFoundError:
            return ()

    def _is_alive(self, lease: Lease) -> bool:
        renewed = lease.spec.renew_time
        first_renewal = self._first.setdefault(lease.metadata.namespace, renewed)
        # A holder that stops empties this field, as client-go's `release` does, while the renewal is recent.
        if not lease.spec.holder_identity:
            return False
        age = self._age_seconds(lease)
        # The age may count only if it is not negative: a renewal from our future says that the clocks differ, not that
        # it is fresh.
        return first_renewal != renewed or (age is not None and 0 <= age <= (lease.spec.lease_duration_seconds or 0))

    def _age_seconds(self, lease: Lease) -> float | None:
        """Return the age of a Lease's last renewal, by its holder's clock and ours; None without a readable time."""
        try:
            renewed = parse_timestamp(lease.spec.renew_time) if lease.spec.renew_time else None
        except InputError:
            return None
        return None if renewed is None else (self._clock.now() - renewed).total_seconds()

    def _patience_seconds(self, leases: Iterable[Lease]) -> float:
        patience = _SHORTEST_SECONDS
        for lease in leases:
            duration, age = lease.spec.lease_duration_seconds or 0, self._age_seconds(lease)
            patience = max(patience, duration / _RENEWALS + 1)
            if age is None or age <= _RECENT_SECONDS:
                # A replica that was killed left its Lease held, and its successor has to wait for the whole duration
                # before it takes over.
                patience = max(patience, duration, _RESTART_SECONDS)
        # A pod that is there but holds no Lease may still pull its image or wait for the API server.
        return max(patience, _START_SECONDS) if self._pods() else patience

    def _pods(self) -> tuple[Pod, ...]:
        """Return the program's pods that have not ended; none where they may not be read."""
        selector = f"{_COMPONENT}={self._program.component}"
        try:
            pods = self._client.list(PODS, namespace=self._namespace, label_selector=selector, type=Pod).items
        except KubeError:
            return ()
        return tuple(pod for pod in pods if self._namespace and not pod.is_terminal and not pod.is_terminating)

    def _in_words(self, leases: Sequence[Lease]) -> str:
        name, home = self._program.name, self._namespace
        namespace_text = f" in the namespace {home}" if home else ""
        if pods := [f"{pod.metadata.name} is {pod.status.phase}" for pod in self._pods()]:
            return (
                f"no {name} is at work{namespace_text}, though its pod {first_few(pods, _NAMED)}: "
                f"kubectl --namespace {home} describe pods --selector {_COMPONENT}={self._program.component} says why"
            )
        if not leases:
            otherwise = ", or name Berth's namespace" if home else ""
            return f"no {name} has ever run{namespace_text}: install Berth's chart{otherwise}"
        latest = max(lease.spec.renew_time or "" for lease in leases)
        since_text = f" since {latest}" if latest else ""
        homes = first_few(sorted({lease.metadata.namespace for lease in leases}), _NAMED)
        return (
            f"no {name} has been at work in the namespace {homes}{since_text}: see its Deployment there, and start it"
        )
