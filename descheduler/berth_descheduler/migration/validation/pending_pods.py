"""Pending pods come first: a plan does not begin, or stops, while its moves would take their room."""

from collections.abc import Collection, Iterable

from berth_core import Room, Snapshot
from berth_descheduler.outcome import NotBegun, Verdict, names_of
from berth_descheduler.planner import Plan, pods_losing_room


def served_pods(rooms: Iterable[Room]) -> frozenset[str]:
    """Return the uids of the pods that rooms are made for: a plan's moves take no room from them."""
    return frozenset(slot.pod_uid for room in rooms for slot in room.slots if slot.pod_uid)


def count_waiting(pods: Collection[str]) -> str:
    """Return how many pods wait, for a sentence."""
    return "1 pod waits" if len(pods) == 1 else f"{len(pods)} pods wait"


def pods_waiting_reason(plan: Plan, snapshot: Snapshot, waited_seconds: float) -> NotBegun | None:
    """Return why a plan has to wait for pending pods, None if it takes no room from any of them."""
    served_uids = served_pods(plan.rooms)
    losing_keys = [pod.key for pod in pods_losing_room(snapshot, plan.moves) if pod.metadata.uid not in served_uids]
    if not losing_keys:
        return None
    waiting_text = f"{count_waiting(losing_keys)} for room that the moves would take"
    text = f"Not begun: {waiting_text}, {waited_seconds:.0f} s by now: {names_of(losing_keys)}."
    return NotBegun(Verdict.PODS_WAIT, text)


def pods_waiting_message(pods: Collection[str], waited: float) -> str:
    waiting_text = f"{count_waiting(pods)} for the room that the moves would take"
    return f"{waiting_text}, {waited:.0f} s by now: {names_of(pods)}"
