"""A cluster in memory where a large pod waits, and an operator in it that keeps room for whom it is made."""

from collections.abc import Mapping
from typing import Any, Final

from berth_core.labels import ROOM_ANNOTATION
from berth_core.quantities import parse_quantity
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from berth_kube.resources import NODES, PODS, REPLICA_SETS
from descheduler.fake_cluster import FakeCluster, Raw, node, pod, replica_set
from planner_settings import planner_settings

LARGE: Final = "large"


def asking(**room: Any) -> PlannerSettings:  # noqa: ANN401 - the plugin's argument, of any form
    """Return how to plan for room, one move after the other."""
    args = DefragmentationArgs.parse({"strategy": "MakeRoom", "room": room or {"pods": [f"shop/{LARGE}"]}})
    return planner_settings(args=args, waves=WaveLimits(per_wave=1))


BEGINS_NOTHING: Final = planner_settings(
    args=DefragmentationArgs.parse({"strategy": "MakeRoom", "evictableNamespaces": {"exclude": ["shop"]}})
)


class RoomCluster(FakeCluster):
    """Has `tight` with two small pods, `roomy-1` and `roomy-2` with room for one each; `large` wants all of a node."""

    def __init__(self) -> None:
        super().__init__()
        self.start_operator()
        self.gives = True
        self.hold = self.hold_or_wait
        self.land = self.land_and_look
        for name in ("tight", "roomy-1", "roomy-2"):
            self.add(NODES, node(name))
        for name in ("web", "api", "firm"):
            self.add(REPLICA_SETS, replica_set(name, 1))
        self.add(PODS, pod("web-1", "web", "tight", cpu="2"))
        self.add(PODS, pod("api-1", "api", "tight", cpu="2"))
        for number in (1, 2):
            firm = pod(f"firm-{number}", "firm", f"roomy-{number}", cpu="8")
            del firm["metadata"]["ownerReferences"]
            self.add(PODS, firm)
        self.wait_for_room(LARGE)

    def wait_for_room(self, name: str, cpu: str = "10") -> Raw:
        """Have another pod wait for a place."""
        waiting = pod(name, "large", "", cpu=cpu)
        del waiting["spec"]["nodeName"], waiting["metadata"]["ownerReferences"]
        waiting["status"] = {"phase": "Pending"}
        return self.add(PODS, waiting)

    def hold_or_wait(self, reservation: Raw) -> None:
        """Hold a place at once; room that a plan makes is waited for."""
        if ROOM_ANNOTATION not in reservation["metadata"].get("annotations", {}):
            self.hold_at_once(reservation)
            return
        with self.lock:
            self.set_reservation(reservation, "Waiting", slot_of(reservation, "Pending"))
            self.hand_out()

    def land_and_look(self, evicted: Raw) -> None:
        """Have a pod land, and see whether that made the room that somebody waits for."""
        self.land_at_once(evicted)
        self.hand_out()

    def hand_out(self) -> None:
        """Give room that is there to whom it is for."""
        for found in self.rooms():
            where, task = found["spec"]["tasks"][0]["reservationNodeNames"][0], found["spec"]["tasks"][0]
            asked = task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            if found["status"]["state"]["phase"] == "Waiting" and self.free_cpu(where) >= millis(asked):
                self.set_reservation(found, "Available", slot_of(found, "Held"))
                self.give(found, where)

    def give(self, room: Raw, where: str) -> None:
        """Let the pod that room was made for run in it."""
        uid = room["spec"]["owners"][0].get("object", {}).get("uid")
        waiting = next((one for one in self.raw(PODS) if one["metadata"]["uid"] == uid), None)
        if self.gives and waiting is not None and not waiting["spec"].get("nodeName"):
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self._store("pods", {**waiting, "spec": {**waiting["spec"], "nodeName": where}, "status": ready})
            latest = self._find_room(room)
            self.take(latest, waiting)

    def _find_room(self, room: Raw) -> Raw:
        metadata = room["metadata"]
        return self.objects["reservations"][metadata["namespace"], metadata["name"]]

    def rooms(self) -> list[Raw]:
        """Return the Reservations that wait for room."""
        return [one for one in self.reservations() if ROOM_ANNOTATION in one["metadata"].get("annotations", {})]

    def free_cpu(self, name: str) -> int:
        """Return what is free on a node, in millicores."""
        here = (one for one in self.raw(PODS) if one["spec"].get("nodeName") == name)
        asked = sum(millis(one["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for one in here)
        return millis(self.objects["nodes"]["", name]["status"]["allocatable"]["cpu"]) - asked


def slot_of(reservation: Mapping[str, Any], state: str) -> Raw:
    """Return the slot of a Reservation's first task in a state."""
    task = reservation["spec"]["tasks"][0]
    return {"task": task["name"], "index": 0, "state": state, "node": task["reservationNodeNames"][0]}


def millis(quantity: str) -> int:
    return parse_quantity(quantity).milli()
