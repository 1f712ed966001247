"""What is observed of pods that surge: whose turn it is, and what came in the stead of one that was let go."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from berth_core import RESERVATION_LABEL, Pod
from berth_descheduler.migration.moves.facts import MoveObservation
from berth_descheduler.migration.moves.memory import MoveMemory, OwnerKey, Since
from berth_descheduler.migration.moves.observation import is_released, runs_without_handover
from berth_descheduler.migration.moves.replacements import made_since
from berth_descheduler.migration.moves.surge_requests import note_of
from berth_descheduler.migration.plans.watch import ObservedPlan


def note_turns(wave: Sequence[MoveMemory], waiting: Collection[int] = ()) -> None:
    """Let one move of each controller surge at a time, the one that has begun or else the first.

    Pods of moves that are `waiting` for others stay, whichever way they go.
    """
    moves_left = [memory for memory in wave if memory.surge.wanted and not memory.finished]
    first_moves: dict[OwnerKey, MoveMemory] = {}
    for memory in sorted(
        # Let go already, then not waiting, then begun: a pod without a controller must never wait for another one's
        # turn.
        moves_left,
        key=lambda memory: (not memory.surge.is_let_go, memory.index in waiting, not memory.is_open),
    ):
        first_moves.setdefault(memory.replicas, memory)
    for memory in wave:
        in_turn = first_moves.get(memory.replicas, memory) is memory or not memory.surge.wanted
        in_turn = in_turn and memory.index not in waiting and not memory.place.postponed
        if memory.surge.in_turn is not in_turn:
            memory.surge = replace(memory.surge, in_turn=in_turn)


def note_release(
    memory: MoveMemory, observation: MoveObservation, observed: ObservedPlan, now: float, others: Collection[str]
) -> None:
    """Update what is seen of a pod that was let go, and of its replacement.

    A restarted run knows the pod by its label, and so does one whose request got no answer; the waits begin anew.
    `others` are the uids of pods that have places of the plan: those beside its own are replacements of siblings. None
    of them is misplaced, with or without the label of the hand-over, which the operator takes off once the pod runs.
    Nor is any other pod misplaced while a pod lives that has the move's place or is on its way there: the controller
    makes pods for other reasons as well, as when it is scaled up or a sibling is deleted.
    """
    pod = observed.pods.get(memory.move.pod_uid)
    if not memory.surge.released and memory.surge.wanted and pod is not None and is_released(pod):
        memory.note_released(note_of(pod).min_ready_seconds, now)
    surge = memory.surge
    if not surge.released:
        return
    replacement = observation.replacement
    living_pods = {
        pod_name: pod
        for pod_name, pod in made_since(memory, observed).items()
        if pod.metadata.uid not in others or (replacement is not None and pod_name == replacement.name)
    }
    is_ready = (
        replacement is not None
        and replacement.ready
        and replacement.node == memory.move.target
        and replacement.name in living_pods
    )
    has_place = bool(memory.place.created)
    uids_at_home = {*others, memory.successor.uid} if has_place else {pod.metadata.uid for pod in living_pods.values()}
    stranger_pods = (pod for pod in living_pods.values() if pod.metadata.uid not in uids_at_home)
    node_of_misplaced = ""
    if not _has_its_pod(memory, observed, living_pods.values()):
        node_of_misplaced = next(
            (stranger.spec.node_name for stranger in stranger_pods if runs_without_handover(stranger)), ""
        )
    memory.waits = (
        memory.waits.note(Since.READY, now, holds=is_ready)
        .note(Since.MISPLACED, now, holds=bool(node_of_misplaced))
        .note(Since.ALONE, now, holds=not living_pods)
    )
    is_available = memory.waits.lasts(Since.READY, surge.min_ready_seconds, now)
    memory.surge = replace(surge, available=is_available, misplaced=node_of_misplaced)


def _has_its_pod(memory: MoveMemory, observed: ObservedPlan, living_pods: Iterable[Pod]) -> bool:
    """Return whether a living pod has the move's place, or carries the label of its Reservation."""
    reservation = observed.reservations.get(memory.key)
    reservation_uid = reservation.metadata.uid if reservation is not None else None
    return any(
        pod.metadata.uid == memory.successor.uid
        or (reservation_uid is not None and pod.metadata.labels.get(RESERVATION_LABEL) == reservation_uid)
        for pod in living_pods
    )
