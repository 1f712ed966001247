"""The faults that keep ReservationWindows from holding what they should, as their conditions report them."""

from collections.abc import Iterator, Mapping
from typing import Final

from berth_core import ReservationWindow, WindowCondition, WindowReason
from berth_descheduler.capability import Advice
from berth_kube import RESERVATION_WINDOWS, Access, KubeClient, NotFoundError
from berth_sandbox.invariants import Invariant, Violation

_INSUFFICIENT: Final = dict.fromkeys(
    (WindowReason.NO_MOVES.value, WindowReason.AWAITING_APPROVAL.value), Invariant.WINDOW_WITHOUT_MOVES
)
_UNSCHEDULED: Final = {
    WindowReason.INVALID.value: Invariant.WINDOW_INVALID,
    WindowReason.OVERLAPPING.value: Invariant.WINDOW_OVERLAPS,
}


def find_window_troubles(client: KubeClient) -> Iterator[Violation]:
    """Yield the windows that cannot open or lack capacity; one that is switched off lacks nothing."""
    try:
        bodies = client.list(RESERVATION_WINDOWS).items
    except NotFoundError:
        return
    for window in map(ReservationWindow.read, bodies):
        target = f"reservationwindow {window.key}"
        scheduled, sufficient = map(window.condition, (WindowCondition.SCHEDULED, WindowCondition.SUFFICIENT))
        if scheduled is not None and scheduled.status == "False" and scheduled.reason in _UNSCHEDULED:
            yield Violation(_UNSCHEDULED[scheduled.reason], target, scheduled.message)
        if sufficient is not None and sufficient.status == "False":
            invariant = _INSUFFICIENT.get(sufficient.reason, Invariant.WINDOW_SHORT)
            yield Violation(invariant, target, f"{sufficient.reason}: {sufficient.message}")


_WINDOWS: Final = Access("list", RESERVATION_WINDOWS)

ADVICE: Final[Mapping[Invariant, Advice]] = {
    Invariant.WINDOW_INVALID: Advice(
        what="A ReservationWindow cannot open.",
        why="Nothing is reserved for its pods, and they wait like all others.",
        to_do="Mend the field that is named:",
        command="kubectl -n {namespace} edit reservationwindow {name}",
        rights=(_WINDOWS,),
    ),
    Invariant.WINDOW_OVERLAPS: Advice(
        what="A ReservationWindow is open so often at once that occurrences are left out.",
        why="Each occurrence holds places of its own, and those left out hold none.",
        to_do="Make its duration or startReserveAgo shorter, or its schedule rarer:",
        command="kubectl -n {namespace} edit reservationwindow {name}",
        rights=(_WINDOWS,),
    ),
    Invariant.WINDOW_WITHOUT_MOVES: Advice(
        what="A ReservationWindow may move pods to have its capacity, and no policy does so by itself.",
        why="It waits for pods that may not end before its start.",
        to_do="Approve the plan that waits (berth plans), or enable the balance plugin ReservationWindows in a policy "
        "of mode Auto, and run a descheduler:",
        command="kubectl -n {namespace} describe reservationwindow {name}",
        rights=(_WINDOWS,),
    ),
    Invariant.WINDOW_SHORT: Advice(
        what="A ReservationWindow does not find its capacity by its start.",
        why="Some of its pods may not start in time.",
        to_do="Reserve earlier (startReserveAgo), choose other nodes, or let pods be moved (mayMove: Consolidate):",
        command="kubectl -n {namespace} edit reservationwindow {name}",
        rights=(_WINDOWS,),
    ),
}
