"""Queues with slots around an API server in memory: a scheduler of one resource, and an operator's Reservations."""

from dataclasses import dataclass
from typing import Any, Final

from berth_core import (
    HANDOVER_GATE,
    INDEX_ANNOTATION,
    PLACEHOLDER_LABEL,
    QUEUE_GATE,
    RESERVATION_LABEL,
    RESERVATION_NAME_ANNOTATION,
    TASK_ANNOTATION,
    ResourceAmounts,
    format_timestamp,
)
from berth_kube import PODS, RESERVATIONS, NotFoundError
from berth_operator.reservation.act.resync import list_reservations
from builders import as_api, pod
from queue_simulation import MILLION, QueueSimulation

SHAPE: Final = {"cpu": "100m", "memory": "100M"}
HELD: Final = {"guarantee": {"resource": {"memory": "200M"}}, "enforcement": "Held", "held": {"shape": SHAPE}}
HOME: Final = "berth-system"

Body = dict[str, Any]


@dataclass(eq=False)
class HeldSimulation(QueueSimulation):
    """The two queues of the proposal, the second of which holds its guarantee in slots."""

    total: int = 1000
    """Memory of the nodes, in millions of bytes."""
    is_frozen: bool = False
    """Whether nothing is scheduled, and no Reservation gets its place."""

    def hear(self) -> None:
        self.play()
        list_reservations(self.api.as_client(), self.cache)
        for body in self._pods():
            found = body["metadata"]
            if found.get("labels", {}).get(RESERVATION_LABEL) and found["namespace"] != HOME:
                self.cache.put_owner(pod(found["name"], namespace=found["namespace"], labels=found["labels"]))
        super().hear()

    # --- the rest of the cluster

    def play(self) -> None:
        """Give each live Reservation its placeholder, bind what has room, and report what is held."""
        live = {body["metadata"]["uid"]: body for body in self.reservations() if not self.is_over(body)}
        for body in self._pods(HOME):
            if body["metadata"]["labels"][RESERVATION_LABEL] not in live:
                self.end(body["metadata"]["name"], HOME)
        if self.is_frozen:
            return
        for uid, body in live.items():
            if not self._placeholder(uid) and self._state(body) != "HandingOver":
                self._create_placeholder(body)
        self.bind()
        for uid, body in live.items():
            held = self._placeholder(uid)
            if held is not None and held["spec"].get("nodeName") and not body.get("status"):
                self.report(body, "Available", "Held")

    def bind(self) -> None:
        for body in self._pods():
            gates = body["spec"].get("schedulingGates", [])
            if not body["spec"].get("nodeName") and not gates and self._memory(body) <= self.room():
                body["spec"] = {**body["spec"], "nodeName": "node-a"}
                body["status"] = {**body.get("status", {}), "phase": "Running"}
                self.api.put(PODS, body)

    def room(self) -> int:
        return self.total - sum(self._memory(body) for body in self._pods() if body["spec"].get("nodeName"))

    def report(self, body: Body, phase: str, slot: str = "", *, owner: Body | None = None, reason: str = "") -> None:
        """Write the status of a Reservation as the operator would."""
        slots = [{"task": "slot", "index": 0, "state": slot, **({"owner": owner} if owner else {})}] if slot else []
        since = format_timestamp(self.clock.now())
        state = {"phase": phase, "reason": reason, "message": reason, "lastTransitionTime": since}
        self.api.put(RESERVATIONS, {**body, "status": {"state": state, "slots": slots}})

    def fail(self, name: str, reason: str) -> None:
        self.report(self.reservation(name), "Failed", reason=reason)

    # --- what pods do

    def come_for(self, name: str, reservation: str, memory: str = "100M", *, gates: tuple[str, ...] = ()) -> None:
        """Create a pod as the webhook sends it to a Reservation."""
        uid = self.reservation(reservation)["metadata"]["uid"]
        self.submit(name, "b", memory=memory, labels={RESERVATION_LABEL: uid}, gates=(HANDOVER_GATE, *gates))

    def hand_over(self, name: str, reservation: str) -> None:
        """Give a slot to its pod, from the first step to the last."""
        body = self.reservation(reservation)
        uid = body["metadata"]["uid"]
        owner = {"kind": "Pod", "namespace": "b", "name": name, "uid": f"uid-b-{name}"}
        self.report(body, "Available", "HandingOver", owner=owner)
        self.settle()
        self.end(self._placeholder(uid)["metadata"]["name"], HOME)  # type: ignore[index]
        self.settle()
        body_of_owner = self.api.objects[PODS.plural]["b", name]
        body_of_owner["spec"] = {**body_of_owner["spec"], "schedulingGates": [], "nodeName": "node-a"}
        self.api.put(PODS, body_of_owner)
        self.settle()
        body_of_owner["metadata"] = {**body_of_owner["metadata"], "labels": {}}
        self.api.put(PODS, body_of_owner)
        self.report(self.reservation(reservation), "Succeeded", "Taken", owner=owner)
        self.cache.remove_owner(pod(name, namespace="b", labels={RESERVATION_LABEL: uid}))
        self.settle()

    # --- what is there

    def reservations(self, namespace: str = "b") -> list[Body]:
        return [body for (within, _), body in self.api.objects["reservations"].items() if within == namespace]

    def reservation(self, name: str) -> Body:
        found = [body for body in self.reservations() if body["metadata"]["name"].startswith(name)]
        if len(found) != 1:
            raise NotFoundError
        return found[0]

    def live(self) -> list[str]:
        """Return the slots that are live, as `held-0`."""
        names = [body["metadata"]["name"] for body in self.reservations() if not self.is_over(body)]
        return sorted(name.removeprefix("q2-").rpartition("-")[0] for name in names)

    def held(self) -> int:
        return self.queue("q2").status.held_slots

    def allocated(self) -> int:
        found = self.queue("q2").status.allocated
        return ResourceAmounts.from_quantities(found)["memory"] // MILLION

    def waits(self, name: str) -> bool:
        """Return whether a pod of the second queue has the queue's gate."""
        gates = self.api.objects[PODS.plural]["b", name]["spec"].get("schedulingGates", [])
        return {"name": QUEUE_GATE} in gates

    def phase(self, body: Body) -> str:
        return str(body.get("status", {}).get("state", {}).get("phase", ""))

    def is_over(self, body: Body) -> bool:
        return self.phase(body) in {"Succeeded", "Failed"}

    def _state(self, body: Body) -> str:
        slots = body.get("status", {}).get("slots") or [{"state": ""}]
        return str(slots[0]["state"])

    def _pods(self, namespace: str | None = None) -> list[Body]:
        bodies = [(within, body) for (within, _), body in self.api.objects[PODS.plural].items()]
        return [body for within, body in bodies if namespace in (None, within)]

    def _placeholder(self, uid: str) -> Body | None:
        labelled = (body for body in self._pods(HOME) if body["metadata"]["labels"][RESERVATION_LABEL] == uid)
        return next(labelled, None)

    def _create_placeholder(self, body: Body) -> None:
        meta = body["metadata"]
        requests = body["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
        made = pod(
            f"holds-{meta['name']}",
            namespace=HOME,
            labels={PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: meta["uid"]},
            annotations={
                RESERVATION_NAME_ANNOTATION: f"{meta['namespace']}/{meta['name']}",
                TASK_ANNOTATION: "slot",
                INDEX_ANNOTATION: "0",
            },
            cpu=requests.get("cpu"),
            memory=requests.get("memory"),
        )
        found = as_api(made)
        found["metadata"]["uid"] = f"uid-holds-{meta['uid']}"
        self.api.put(PODS, found)

    def _memory(self, body: Body) -> int:
        requests = body["spec"]["containers"][0]["resources"]["requests"]
        return ResourceAmounts.from_quantities(requests)["memory"] // MILLION


def simulated_slots(**second: Any) -> HeldSimulation:  # noqa: ANN401 - fields of the second queue's spec
    one = HeldSimulation()
    one.namespace("a", team="q1")
    one.namespace("b", team="q2")
    one.write("q1")
    one.write("q2", **(HELD | second))
    one.settle()
    return one
