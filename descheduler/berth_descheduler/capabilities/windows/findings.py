"""What keeps ReservationWindows from holding what they should, as their conditions say."""

from collections.abc import Iterator
from typing import Final

from berth_core import ReservationWindow, WindowCondition, WindowReason
from berth_kube import RESERVATION_WINDOWS, KubeClient, NotFoundError
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
