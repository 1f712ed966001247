"""An operator's windows around an API server in memory, driven by a clock that only the test moves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from berth_core import (
    WINDOW_API_VERSION,
    WINDOW_KIND,
    Reservation,
    ReservationPhase,
    ReservationWindow,
    format_timestamp,
    parse_timestamp,
)
from berth_core.labels import MAXIMUM_RUNTIME_ANNOTATION
from berth_kube import PODS, RESERVATION_WINDOWS, RESERVATIONS
from berth_operator.capabilities.windows.act import Windows
from berth_operator.capabilities.windows.store import WINDOW
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.capability import Kernel
from berth_operator.runtime.workqueue import Key
from builders import FakeClock, as_api, pod
from stepper import CapabilitySimulation, Turn

NAMESPACE: Final = "batch"
EARLY: Final = datetime(2026, 1, 1, tzinfo=UTC)


def window_body(name: str = "nightly", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - a field of the spec
    """Return a window as a user writes it, by default the proposal's own."""
    proposal: dict[str, Any] = {
        "schedule": "0 3 - 4 * * *",
        "startReserveAgo": "2h",
        "podNumToReserve": 10,
        "resources": {"cpu": "32", "memory": "64Gi"},
    }
    return {
        "apiVersion": WINDOW_API_VERSION,
        "kind": WINDOW_KIND,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {key: value for key, value in {**proposal, **spec}.items() if value is not None},
    }


def big_node(name: str, *, cpu: str = "64", memory: str = "256Gi", **labels: str) -> GuardableNode:
    offers = {"cpu": cpu, "memory": memory, "pods": "110"}
    body = {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": {"allocatable": offers}}
    return msgspec.convert(body, GuardableNode)


@dataclass(eq=False)
class WindowSimulation(CapabilitySimulation[Windows]):
    now: datetime = EARLY
    nodes: tuple[GuardableNode, ...] = (big_node("node-a"), big_node("node-b"))
    lives: dict[str, list[datetime]] = field(default_factory=dict)
    """By name of a Reservation, when it was created and when it ended."""
    _read: dict[str, Reservation] = field(default_factory=dict)
    """By resourceVersion, each version as it was read."""
    is_up: bool = True

    def __post_init__(self) -> None:
        self.clock = FakeClock(self.now)
        self.api.now = lambda: format_timestamp(self.clock.now())
        self.restart()

    def build(self, kernel: Kernel) -> Windows:
        return Windows(kernel)

    def is_own(self, key: Key) -> bool:
        return key.kind == WINDOW

    def may_act(self) -> bool:
        return self.is_up

    def restart(self) -> None:
        self.is_up = True
        super().restart()
        for body in self.stored(RESERVATIONS):
            self.cache.put_reservation(Reservation.read(body))
        for body in self.stored(RESERVATION_WINDOWS):
            self.controller.store.put(ReservationWindow.read(body))

    def apply(self, body: Mapping[str, Any]) -> None:
        """Create or change a window, as a user does."""
        known = self.api.objects[RESERVATION_WINDOWS.plural].get((NAMESPACE, body["metadata"]["name"]))
        metadata = dict(body["metadata"])
        if known is not None:
            metadata["generation"] = known["metadata"]["generation"] + 1
        status = {} if known is None else {"status": known.get("status", {})}
        self.api.put(RESERVATION_WINDOWS, {**body, **status, "metadata": metadata})
        if self.is_up:
            self.controller.store.put(self.window(metadata["name"]))
            self.settle()

    def put_running(self, name: str, *, node: str, cpu: str, runtime: str = "") -> None:
        """Add a pod that runs since the simulation began, at most for `runtime`."""
        annotations = {MAXIMUM_RUNTIME_ANNOTATION: runtime} if runtime else {}
        made = pod(name, node=node, cpu=cpu, annotations=annotations)
        status = msgspec.structs.replace(made.status, start_time=format_timestamp(self.now))
        self.api.put(PODS, as_api(msgspec.structs.replace(made, status=status)))

    def window(self, name: str = "nightly") -> ReservationWindow:
        return ReservationWindow.read(self.api.objects[RESERVATION_WINDOWS.plural][NAMESPACE, name])

    def reservations(self, *, live: bool = True) -> list[Reservation]:
        reservations = [self._of_version(body) for body in self.stored(RESERVATIONS)]
        chosen = [reservation for reservation in reservations if reservation.is_live or not live]
        return sorted(chosen, key=lambda reservation: reservation.metadata.name)

    def _of_version(self, body: dict[str, Any]) -> Reservation:
        """Return a Reservation, each version read once: all of them are asked for at every step."""
        version = body["metadata"]["resourceVersion"]
        if version not in self._read:
            self._read[version] = Reservation.read(body)
        return self._read[version]

    def turns(self, seconds: float) -> Iterator[Turn]:
        self.clock.advance(seconds)
        yield self._expire
        yield self.settle

    def settle(self) -> None:
        """Handle what is due now, also what that makes due; note when a Reservation began."""
        while self.is_up and (due := [key for key, moment in self.due.items() if moment <= self.clock.now()]):
            for key in due:
                del self.due[key]
                self.controller.reconcile(key)
        for body in self.stored(RESERVATIONS):
            self.lives.setdefault(body["metadata"]["name"], [self.clock.now()])

    def advance(self, until: datetime) -> None:
        """Let time pass, in steps from one due key or end of a Reservation to the next."""
        while (moment := self._next()) is not None and moment <= until:
            self.step(max(0.0, (moment - self.clock.now()).total_seconds()))
        self.step((until - self.clock.now()).total_seconds())

    def _next(self) -> datetime | None:
        ends = [parse_timestamp(one.spec.expires or "") for one in self.reservations()]
        keys = self.due.values() if self.is_up else ()
        return min([*(end for end in ends if self.is_up), *keys], default=None)

    def _expire(self) -> None:
        """Fail what is over, as the operator does, and forget what ended an hour ago."""
        if not self.is_up:
            return
        now = self.clock.now()
        for one in self.reservations():
            if parse_timestamp(one.spec.expires or "") <= now:
                self.finish(one, ReservationPhase.FAILED, "Expired")
        for one in self.reservations(live=False):
            ended = self.lives[one.metadata.name][1:]
            if not one.is_live and ended and ended[0] + timedelta(hours=1) <= now:
                del self.api.objects[RESERVATIONS.plural][NAMESPACE, one.metadata.name]
                self.cache.remove_reservation(one.metadata.uid)

    def finish(self, one: Reservation, phase: ReservationPhase, reason: str) -> None:
        """End a Reservation now."""
        self.lives[one.metadata.name].append(self.clock.now())
        key = NAMESPACE, one.metadata.name
        status = {"state": {"phase": phase.value, "reason": reason}}
        self.api.put(RESERVATIONS, {**self.api.objects[RESERVATIONS.plural][key], "status": status})
        self.cache.put_reservation(Reservation.read(self.api.objects[RESERVATIONS.plural][key]))
