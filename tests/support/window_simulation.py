"""An operator's windows around an API server in memory, driven by a clock that only the test moves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from api_server_in_memory import ApiServerInMemory
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
from berth_kube import PODS, RESERVATION_WINDOWS, RESERVATIONS, Resource
from berth_operator.capabilities.windows.act import Windows
from berth_operator.capabilities.windows.store import WINDOW
from berth_operator.reservation.act.context import Context, EventRecorder
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.workqueue import Key
from berth_operator.settings import OperatorSettings
from builders import FakeClock, as_api, pod
from capability_kernels import build_kernel

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


@dataclass
class NamingApi(ApiServerInMemory):
    """An API server that gives what is created a uid and a date."""

    def create(self, resource: Resource, body: Mapping[str, Any], **rest: Any) -> Any:  # noqa: ANN401 - as the client
        meta = {"uid": f"uid-{body['metadata']['name']}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return super().create(resource, {**body, "metadata": {**body["metadata"], **meta}}, **rest)


@dataclass
class WindowSimulation:
    """One operator at a time; `restart` puts another in its place, which knows only what the API server holds."""

    now: datetime = EARLY
    api: NamingApi = field(default_factory=NamingApi)
    nodes: tuple[GuardableNode, ...] = (big_node("node-a"), big_node("node-b"))
    lives: dict[str, list[datetime]] = field(default_factory=dict)
    """By name of a Reservation, when it was created and when it ended."""
    is_up: bool = True

    def __post_init__(self) -> None:
        self.clock = FakeClock(self.now)
        self.restart()

    def restart(self) -> None:
        """Begin anew from what the API server holds."""
        self.is_up = True
        self.due: dict[str, datetime] = {}
        self.cache = Cache(self._enqueue)
        client = self.api.as_client()
        self.recorder = EventRecorder(client)
        context = Context(client, self.cache, OperatorSettings(), self.clock)
        kernel = build_kernel(context, recorder=self.recorder, leads=lambda: self.is_up, enqueue=self._enqueue)
        self.controller = Windows(kernel)
        for node in self.nodes:
            self.cache.put_node(node)
        for body in self._stored(RESERVATIONS.plural):
            self.cache.put_reservation(Reservation.read(body))
        for body in self._stored(RESERVATION_WINDOWS.plural):
            self.controller.store.put(ReservationWindow.read(body))

    def _stored(self, plural: str) -> list[dict[str, Any]]:
        return list(self.api.objects[plural].values())

    def _enqueue(self, key: Key, seconds: float = 0.0) -> None:
        """Queue a window; the earliest of several times counts."""
        if key.kind == WINDOW:
            moment = self.clock.now() + timedelta(seconds=seconds)
            self.due[key.name] = min(moment, self.due.get(key.name, moment))

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
        found = [Reservation.read(body) for body in self._stored(RESERVATIONS.plural)]
        return sorted((one for one in found if one.is_live or not live), key=lambda one: one.metadata.name)

    def settle(self) -> None:
        """Handle what is due now, also what that makes due; the API server names and dates what is new."""
        while self.is_up and (due := [uid for uid, moment in self.due.items() if moment <= self.clock.now()]):
            for uid in due:
                del self.due[uid]
                self.controller.reconcile(Key(WINDOW, uid))
        for body in self._stored(RESERVATIONS.plural):
            self.lives.setdefault(body["metadata"]["name"], [self.clock.now()])

    def advance(self, until: datetime) -> None:
        """Let time pass, in steps from one due key or end of a Reservation to the next."""
        while (moment := self._next()) is not None and moment <= until:
            self.clock.advance(max(0.0, (moment - self.clock.now()).total_seconds()))
            self._expire()
            self.settle()
        self.clock.advance((until - self.clock.now()).total_seconds())
        self._expire()
        self.settle()

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

    def events(self) -> list[str]:
        """Return the reasons of the events that were recorded since the last call."""
        found = []
        while not self.recorder._waiting.empty():
            found.append(self.recorder._waiting.get_nowait().reason)
        return found
