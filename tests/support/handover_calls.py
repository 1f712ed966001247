"""Telling apart the calls that the operator makes in a hand-over, for tests that disturb one of them.

The pod is named "owner", the Reservation "place".
"""

from collections.abc import Callable
from typing import Final

from berth_core.labels import HANDOVER_TAINT, RESERVATION_LABEL
from faults import Call

_ENDED: Final = b'"phase":"Succeeded"'


def patches(call: Call, end: str) -> bool:
    return call.method == "PATCH" and call.path.endswith(end)


def gives_the_slot(call: Call) -> bool:
    return patches(call, "/pods/owner") and b"/spec/tolerations" in call.body


def tells_that_a_place_is_held(call: Call) -> bool:
    return patches(call, "/reservations/place/status") and b'"phase":"Available"' in call.body


def says_who_takes_the_slot(call: Call) -> bool:
    return patches(call, "/reservations/place/status") and _ENDED not in call.body


def guards_the_node(call: Call) -> bool:
    return call.method == "PATCH" and "/nodes/" in call.path and HANDOVER_TAINT.encode() in call.body


def fences_the_node_off(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/pods") and b'"nodeName"' in call.body


def deletes_the_placeholder(call: Call) -> bool:
    return call.method == "DELETE" and "/pods/place-" in call.path


def nominates_the_pod(call: Call) -> bool:
    return patches(call, "/pods/owner/status")


def takes_the_gate_off(call: Call) -> bool:
    return patches(call, "/pods/owner") and b"schedulingGates" in call.body


def says_that_the_slot_is_taken(call: Call) -> bool:
    return patches(call, "/reservations/place/status") and _ENDED in call.body


def records_the_event(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/events")


def takes_label_and_note_off(call: Call) -> bool:
    label = RESERVATION_LABEL.replace("/", "~1").encode()
    return patches(call, "/pods/owner") and label in call.body and b'"remove"' in call.body


def takes_the_guard_off(call: Call) -> bool:
    return call.method == "PATCH" and "/nodes/" in call.path and HANDOVER_TAINT.encode() not in call.body


def takes_the_fence_away(call: Call) -> bool:
    return call.method == "DELETE" and "/pods/fence-" in call.path


def unregisters_the_webhook(call: Call) -> bool:
    return call.method == "DELETE" and "/mutatingwebhookconfigurations/" in call.path


CALLS: Final[dict[str, Callable[[Call], bool]]] = {
    "the pod is given its slot": gives_the_slot,
    "the status says who takes the slot": says_who_takes_the_slot,
    "the node is fenced off": fences_the_node_off,
    "the node is guarded": guards_the_node,
    "the placeholder is deleted": deletes_the_placeholder,
    "the pod is nominated": nominates_the_pod,
    "the gate is taken off": takes_the_gate_off,
    "the status says that the slot is taken": says_that_the_slot_is_taken,
    "the event is recorded": records_the_event,
    "label and note are taken off": takes_label_and_note_off,
    "the guard is taken off": takes_the_guard_off,
    "the fence is taken away": takes_the_fence_away,
    "the webhook is unregistered": unregisters_the_webhook,
}
"""In the order in which they are made."""
