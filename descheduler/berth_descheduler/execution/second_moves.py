"""Owns moves of pods that the same plan has moved before: which pod such a move means by now.

It does not own the moves themselves. A pod that stands in the way goes to a third node for a while; where it goes from
there is planned by its name, but what the plan finds there is its replacement.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from berth_core.labels import MOVE_ANNOTATION
from berth_core.migration_plans import MoveState, MoveStatus, PlannedMove
from berth_core.names import reservation_name
from berth_core.objects import Pod
from berth_descheduler.execution.facts import MoveProgress
from berth_descheduler.execution.observation import Observed


def earlier_moves(moves: Sequence[PlannedMove]) -> Mapping[int, int]:
    """Return, for each move of a pod that was to be moved before, the position of that earlier move."""
    last: dict[tuple[str, str], int] = {}
    found: dict[int, int] = {}
    for index, move in enumerate(moves):
        key = (move.namespace, move.pod)
        if key in last:
            found[index] = last[key]
        last[key] = index
    return found


def follow(progress: MoveProgress, earlier: MoveStatus, plan: str, observed: Observed) -> bool:
    """Let a second move mean the replacement that the earlier one brought; tell whether there is one.

    Of a plan that is continued, the replacement may have been evicted already: then its Reservation says so.
    """
    begun = _reservation_of(progress, observed)
    if begun:
        progress.reservation = begun
    elif earlier.state is not MoveState.LANDED:
        return False
    pod = _pod_named(progress.move.namespace, earlier.replacement, observed)
    if pod is None and not begun:
        return False
    uid = pod.metadata.uid if pod is not None else ""
    progress.move = replace(progress.move, pod=earlier.replacement, pod_uid=uid)
    if not begun:
        progress.reservation = reservation_name(plan, uid)
    return True


def _reservation_of(progress: MoveProgress, observed: Observed) -> str:
    """Return the name of the Reservation that an interrupted run made for a move, "" if it made none."""
    for found in observed.reservations.values():
        if found.metadata.annotations.get(MOVE_ANNOTATION) == str(progress.index):
            return found.metadata.name
    return ""


def _pod_named(namespace: str, name: str, observed: Observed) -> Pod | None:
    found = (pod for pod in observed.pods.values() if (pod.metadata.namespace, pod.metadata.name) == (namespace, name))
    return next(found, None)
