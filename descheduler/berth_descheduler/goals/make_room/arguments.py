"""The argument `room` of `MakeRoom`, and its options."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from berth_core import InputError, Snapshot, first_few
from berth_descheduler.goals.make_room.request import RoomRequest, find_pods_to_fit
from berth_descheduler.planner.goal import GoalOption, UnknownName

ROOM: Final = "room"

ROOM_ARGUMENTS: Final[Mapping[str, str]] = {
    ROOM: "`MakeRoom`: lists `shapes` and `pods`, or a `queue`; `owners` of shapes; all pending pods by default.",
}

_SHAPE_OWNER: Final = "--shape-owner"
_NAMED: Final = 5

ROOM_OPTIONS: Final = (
    GoalOption(
        "--shape",
        "RESOURCE=AMOUNT,...[,count=N]",
        "make-room: what must fit, such as cpu=12,memory=48Gi,count=3; without a count as many as possible.",
        fields=("shape",),
        is_repeated=True,
    ),
    GoalOption(
        _SHAPE_OWNER,
        "NAMESPACE/SELECTOR",
        "make-room: whose pods may take the room of the shapes, such as ml/app=train. Default: none.",
        fields=("room.owners", "room.owners.namespace", "room.owners.selector"),
        is_quoted_whole=True,
    ),
    GoalOption(
        "--queue",
        "NAME",
        "make-room: make room for the unused part of this queue's guarantee, instead of --shape and --pod. "
        "If Volcano and Berth both have a queue of that name: queues.GROUP/NAME.",
        fields=("room.queue",),
    ),
    GoalOption(
        "--pod",
        "NAMESPACE/NAME",
        "make-room: a pending pod that must fit, with its gang; may be repeated. Default: all pending pods.",
        fields=("pod",),
        is_repeated=True,
    ),
)


def room_arguments_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument `room` from the options; raises `InputError` for an invalid owner."""
    room: dict[str, Any] = {"shapes": list(options["shape"]), "pods": list(options["pod"])}
    if options["queue"] is not None:
        room["queue"] = options["queue"]
    if options["shape_owner"] is not None:
        namespace, slash, selector = options["shape_owner"].partition("/")
        if not slash:
            raise InputError(_SHAPE_OWNER, options["shape_owner"], "a namespace and a selector, as ml/app=train")
        room["owners"] = {"namespace": namespace, "selector": selector}
    return {ROOM: room}


def unknown_to_room(room: RoomRequest, snapshot: Snapshot) -> Iterator[UnknownName]:
    """Yield the queue that the cluster does not have, and the pods that do not wait."""
    try:
        room.guaranteed(snapshot)
    except InputError as error:
        text = f"{error.field} is {error.said or room.queue}, and not {error.expected}: no room is made for it."
        yield UnknownName(error.field, text, selects_nothing=True)
    named_pods = find_pods_to_fit(room, snapshot) if room.pods else ()
    waiting = {(pod.metadata.namespace, pod.metadata.name) for pod in named_pods}
    if unknown_pods := ["/".join(key) for key in room.pods if key not in waiting]:
        idle = len(unknown_pods) == len(room.pods) and not room.shapes
        text = f"room.pods names {first_few(unknown_pods, _NAMED)}, and no such pod waits for room."
        yield UnknownName("room.pods", text, selects_nothing=idle)
