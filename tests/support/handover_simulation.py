"""A simulated hand-over, played step by step.

The operator is the real one, except for its watches and its queue: after each step it observes and reconciles
everything. The schedulers are adverse: the hungry pod is older than the owner and tried first, by a scheduler that sees
either nodes or pods a step late. Violations are in `HandoverSimulation.faults`.
"""
# ruff: noqa: ANN401 - the client's own names; a raw object is anything

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar, cast

import msgspec

from api_server_in_memory import ApiServerInMemory, copied
from berth_core import Pod
from berth_core.clock import format_precise_timestamp
from berth_core.labels import HANDOVER_TAINT, PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_core.names import OPERATOR_LEASE
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, Reservation, SlotState
from berth_descheduler.migration.operator.cleanup import StaleOperatorCleanup
from berth_kube import Listed
from berth_kube.errors import Call, Failure, UnreachableError
from berth_kube.resources import LEASES, NODES, PODS, RESERVATIONS, Resource
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.controller import Controller
from berth_operator.runtime.workqueue import WAITING_KEY, Key, KeyKind, WorkQueue
from berth_operator.settings import OperatorSettings
from builders import as_api
from handover_builders import GATED, PLACE_UID, PROVEN, owner_pod, place, placeholder, slot, with_condition
from stepper import Simulation, Turn

Raw = dict[str, Any]
T = TypeVar("T")

NODE: Final = "node-a"
GUARD_KEY: Final = Key(KeyKind.NODE, NODE)
PLACE_KEY: Final = Key(KeyKind.RESERVATION, PLACE_UID)
ROOM: Final = {"cpu": "4", "memory": "16Gi", "pods": "1"}
STEP_SECONDS: Final = 0.25
_GAP_STEP_SECONDS: Final = 2.5
_LEASE_SECONDS: Final = 6
_BELIEF_SECONDS: Final = 4.0
_WATCHDOG_SECONDS: Final = 10.0
_STALE_SECONDS: Final = 30.0
_MOST_STEPS: Final = 600
_START_SECONDS: Final = 0.5
_GRACE_SECONDS: Final = 1.0


class Actor(Enum):
    """Who may be away."""

    OPERATOR = "operator"
    API_SERVER = "API server"
    SCHEDULERS = "schedulers"
    KUBELET = "kubelet"
    DESCHEDULER = "descheduler"


class KilledError(BaseException):
    """The operator is killed in the middle of a call."""


@dataclass(eq=False)
class FallibleApi(ApiServerInMemory):
    """An API server that may be away; `after` is told of each write that was carried out."""

    is_up: bool = True
    after: Callable[[str], None] = lambda _call: None

    def _called(self, verb: str, resource: Resource, name: str, subresource: str = "") -> None:
        if not self.is_up:
            call, failure = Call(verb, f"{resource.plural} {name}"), Failure(message="away")
            raise UnreachableError(call, failure, url="https://127.0.0.1:1", acted=False)
        super()._called(verb, resource, name, subresource)

    def merge_patch(self, resource: Resource, name: str, body: Any, **rest: Any) -> Any:
        answer = super().merge_patch(resource, name, body, **rest)
        self.after(f"merge {resource.plural}")
        return answer

    def json_patch(self, resource: Resource, name: str, operations: Any, **rest: Any) -> Any:
        answer = super().json_patch(resource, name, operations, **rest)
        self.after(f"patch {resource.plural}")
        return answer

    def delete(self, resource: Resource, name: str, **rest: Any) -> None:
        super().delete(resource, name, **rest)
        self.after(f"delete {resource.plural}")


@dataclass(eq=False)
class HandoverSimulation(Simulation):
    """A node for one pod: a placeholder holds it, its owner has just been created, a hungry pod waits for it."""

    late_view: Resource = NODES
    """What the schedulers see a step late."""

    api: FallibleApi = field(default_factory=lambda: FallibleApi(pods_linger=True))
    away: set[Actor] = field(default_factory=set)
    on_write: Callable[[str], None] = lambda _call: None
    """Told of each write of the operator."""

    def __post_init__(self) -> None:
        self.api.put(
            NODES, {"metadata": {"name": NODE, "uid": "uid-node-a"}, "spec": {}, "status": {"allocatable": ROOM}}
        )
        held = place(slot(SlotState.HELD, node=NODE), ttl="2h")
        self.api.put(RESERVATIONS, as_api(held, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
        self.api.put(PODS, as_api(placeholder(node=NODE)))
        self.api.put(PODS, as_api(with_condition(owner_pod("web-0"), GATED)))
        hungry = owner_pod("hungry", labels={}, gates=(), created="2026-11-21T11:00:00Z")
        self.api.put(PODS, as_api(hungry))
        self.lease = self.clock.monotonic()
        self._since: dict[tuple[str, str], float] = {}
        self._read: dict[tuple[type, str], Any] = {}
        self._seen: dict[Resource, list[Raw]] = {}
        self._see()
        self._returns_at = 0.0
        self._watch = StaleOperatorCleanup(
            self.api.as_client(), self.clock, "berth-system", every=_WATCHDOG_SECONDS, stale=_STALE_SECONDS
        )
        self._looked_at = self.clock.monotonic()
        self._is_operating = False
        self.api.after = lambda call: self.on_write(call) if self._is_operating else None
        self.start_operator()

    # --- the operator

    def start_operator(self) -> None:
        """Start the operator, with nothing in its memory."""
        queue = WorkQueue()
        self.cache = Cache(queue.add)
        scope = WebhookRegistration(
            self.api.as_client(),
            client_config=dict,
            live_namespaces=self.cache.live_namespaces,
            own_namespace="berth-system",
            timeout_seconds=2,
        )
        self.engine = Controller(
            self.api.as_client(), self.cache, queue, scope, OperatorSettings(workers=1), self.clock
        )
        self.engine._lease.held = self._holds_lease  # type: ignore[method-assign]

    def _holds_lease(self) -> bool:
        return self.clock.monotonic() - self.lease < _BELIEF_SECONDS

    def _operate(self) -> None:
        """Renew the lease, hear of everything, and look at everything; guards first."""
        self.engine._attended.seconds()
        if not self.api.is_up:
            return
        if not self._holds_lease():
            self.cache.start_epoch()
        self.lease = self.clock.monotonic()
        renewed = format_precise_timestamp(self.clock.now())
        spec = {"holderIdentity": "op", "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": renewed}
        self.api.put(LEASES, {"metadata": {"name": OPERATOR_LEASE, "namespace": "berth-system"}, "spec": spec})
        self._is_operating = True
        try:
            for key in (GUARD_KEY, PLACE_KEY, WAITING_KEY, PLACE_KEY, GUARD_KEY):
                self._hear()
                if self._holds_lease() and self.api.is_up:
                    self.engine.workers.reconcile(key)
        finally:
            self._is_operating = False

    def _hear(self) -> None:
        version = str(self.api.version)
        pods = self._typed(PODS, Pod)
        sent = [pod for pod in pods if RESERVATION_LABEL in pod.metadata.labels]
        placeholders = tuple(pod for pod in sent if PLACEHOLDER_LABEL in pod.metadata.labels)
        owners = tuple(pod for pod in sent if PLACEHOLDER_LABEL not in pod.metadata.labels)
        self.cache.replace_placeholders(Listed(placeholders, version))
        self.cache.replace_owners(Listed(owners, version))
        self.cache.replace_nodes(Listed(tuple(self._typed(NODES, GuardableNode)), version))
        self.cache.replace_reservations(Listed((self.reservation(),), version))
        self.cache.put_probe(PLACE_UID, PROVEN)

    # --- the others

    def _end_and_start_pods(self) -> None:
        """Do what a kubelet does: end pods that were deleted, start pods that were bound, each a moment later."""
        now = self.clock.monotonic()
        for raw in self._list(PODS):
            meta = raw["metadata"]
            step = "ends" if meta.get("deletionTimestamp") else "starts" if raw["spec"].get("nodeName") else ""
            if not step or (step == "starts" and raw["status"]["phase"] != "Pending"):
                continue
            age = now - self._since.setdefault((meta["uid"], step), now)
            if step == "ends" and age >= _GRACE_SECONDS:
                del self.api.objects["pods"][meta["namespace"], meta["name"]]
            elif step == "starts" and age >= _START_SECONDS:
                raw["status"]["phase"] = "Running"
                self.api.put(PODS, raw)

    def _schedule(self) -> None:
        """Bind what seems to fit, the oldest first, by what is seen of nodes and pods."""
        seen = {NODES: self._list(NODES), PODS: self._list(PODS)} | {self.late_view: self._seen[self.late_view]}
        (node,) = seen[NODES]
        is_guarded = any(taint["key"] == HANDOVER_TAINT for taint in node["spec"].get("taints") or ())
        is_full = any(raw["spec"].get("nodeName") for raw in seen[PODS])
        for pod in sorted(seen[PODS], key=lambda raw: raw["metadata"]["creationTimestamp"]):
            raw = self.api.objects["pods"].get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
            is_pending = not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")
            if raw is None or raw["spec"].get("nodeName") or not is_pending:
                continue
            tolerates = any(one.get("key") == HANDOVER_TAINT for one in pod["spec"].get("tolerations") or ())
            fits = not is_full and (tolerates or not is_guarded)
            is_full = is_full or fits
            self.api.put(PODS, _bound(raw) if fits else _refused(raw))
        self._see()

    def _see(self) -> None:
        """Have the schedulers hear of everything; also one that was stopped hears what it missed before it goes on."""
        self._seen = {NODES: self._list(NODES), PODS: self._list(PODS)}

    def _look_after_the_operator(self) -> None:
        if self.clock.monotonic() - self._looked_at >= _WATCHDOG_SECONDS:
            self._looked_at = self.clock.monotonic()
            with suppress(UnreachableError):
                self._watch.look()

    # --- time

    def step(self, seconds: float = STEP_SECONDS) -> None:
        super().step(seconds)

    def turns(self, seconds: float) -> Iterator[Turn]:
        """Yield the turns of all that are not away, the hungry pod's scheduler first."""
        acts: dict[Actor, Callable[[], None]] = {
            Actor.SCHEDULERS: self._schedule,
            Actor.KUBELET: self._end_and_start_pods,
            Actor.DESCHEDULER: self._look_after_the_operator,
            Actor.OPERATOR: self._operate,
        }
        for actor, act in acts.items():
            reaches = self.api.is_up or actor in {Actor.OPERATOR, Actor.DESCHEDULER}
            if actor not in self.away and reaches:
                yield act
        self.clock.advance(seconds)
        self._let_return()

    def interrupt(self, away: frozenset[Actor], seconds: float) -> None:
        """Have some be away from now on; the operator, if it is one of them, is stopped where it is, in a call."""
        self.away |= away
        self._returns_at = self.clock.monotonic() + seconds
        self._let_return()
        if Actor.OPERATOR not in away:
            return
        self._is_operating = False
        while self.away:
            self.step(_GAP_STEP_SECONDS)
        self._is_operating = True

    def _let_return(self) -> None:
        """Have those who were away act again once their time is over."""
        if self.clock.monotonic() >= self._returns_at:
            if Actor.SCHEDULERS in self.away:
                self._see()
            self.away.clear()
        self.api.is_up = Actor.API_SERVER not in self.away

    def play(self) -> None:
        """Go on until the hand-over is over and nothing of it is left."""
        steps = 0
        while steps < _MOST_STEPS:
            if self.is_over():
                return
            steps += not self.away
            self.step(_GAP_STEP_SECONDS if self.away else STEP_SECONDS)
        self.faults.append(f"not over: {self.slot()}, guards {self.guards()}")

    # --- what is true

    def is_over(self) -> bool:
        return self.reservation().phase.terminal and not self.guards() and not self._notes()

    def reservation(self) -> Reservation:
        (reservation,) = self._typed(RESERVATIONS, Reservation)
        return reservation

    def slot(self) -> Any:
        return next(iter(self.reservation().status.slots), None)

    def guards(self) -> list[str]:
        (node,) = self.api.raw(NODES)
        return [taint["value"] for taint in node["spec"].get("taints") or () if taint["key"] == HANDOVER_TAINT]

    def pod(self, name: str) -> Pod:
        return msgspec.convert(self.api.objects["pods"]["default", name], Pod)

    def _notes(self) -> dict[str, str]:
        return self.pod("web-0").metadata.annotations

    def violations(self) -> Iterator[str]:
        on_node = [raw["metadata"]["name"] for raw in self.api.raw(PODS) if raw["spec"].get("nodeName")]
        if len(on_node) > 1:
            yield f"over-booked: {on_node}"
        if "hungry" in on_node and self.pod("web-0").spec.node_name == "":
            yield "stolen"
        if self.slot() is not None and self.slot().state is SlotState.LOST:
            yield f"called lost: {self.slot().message}"

    def _list(self, resource: Resource) -> list[Raw]:
        return [copied(body) for body in self.api.raw(resource)]

    def _typed(self, resource: Resource, type_: type[T]) -> list[T]:
        """Return objects as the programs have them, each version read once: most are asked for at every step."""
        return [self._of_version(raw, type_) for raw in self.api.raw(resource)]

    def _of_version(self, raw: Raw, type_: type[T]) -> T:
        key = (type_, raw["metadata"]["resourceVersion"])
        if key not in self._read:
            self._read[key] = msgspec.convert(raw, type_)
        return cast("T", self._read[key])


def _bound(raw: Raw) -> Raw:
    status = {**raw["status"], "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return {**raw, "spec": {**raw["spec"], "nodeName": NODE}, "status": status}


def _refused(raw: Raw) -> Raw:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {**raw, "status": {**raw["status"], "conditions": conditions, "nominatedNodeName": ""}}


def play_interrupted(simulation: HandoverSimulation, at: int, interrupt: Callable[[HandoverSimulation], None]) -> None:
    """Play a hand-over that is interrupted right after one of the operator's writes, and has so many at least."""
    writes: list[str] = []

    def note(write: str) -> None:
        writes.append(write)
        if len(writes) == at:
            interrupt(simulation)

    simulation.on_write = note
    try:
        simulation.play()
    except KilledError:
        simulation.start_operator()
        simulation.play()
    assert len(writes) >= at
