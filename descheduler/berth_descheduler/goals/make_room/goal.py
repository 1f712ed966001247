"""The goal `MakeRoom`: what waits fits."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from berth_core import Deadline, Snapshot
from berth_descheduler.goals.make_room.arguments import (
    ROOM,
    ROOM_ARGUMENTS,
    ROOM_OPTIONS,
    room_arguments_of,
    unknown_to_room,
)
from berth_descheduler.goals.make_room.request import RoomRequest
from berth_descheduler.goals.make_room.view import describe_room, room_figures, unused_by_rooms
from berth_descheduler.planner import Plan, Strategy
from berth_descheduler.planner.goal import Goal, GoalArguments, GoalOption, Merit, UnknownName
from berth_descheduler.planner.sentences import Figure, instead_of


class MakeRoomGoal(Goal[RoomRequest, RoomRequest]):
    """Makes room for pods that wait, or for shapes of pods to come."""

    name: ClassVar[str] = "MakeRoom"
    empties_nodes: ClassVar[bool] = False
    heeds_min_freed_nodes: ClassVar[bool] = False
    counted: ClassVar[str] = "pods"
    arguments: ClassVar[Mapping[str, str]] = ROOM_ARGUMENTS
    options: ClassVar[tuple[GoalOption, ...]] = ROOM_OPTIONS

    def read(self, raw: Mapping[str, Any]) -> RoomRequest:
        return RoomRequest.parse(raw.get(ROOM))

    def write(self, own: RoomRequest) -> dict[str, Any]:
        return {ROOM: own.to_mapping()}

    def read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return room_arguments_of(options)

    def typed(self, own: RoomRequest) -> RoomRequest:
        return replace(own, names_must_exist=True)

    def request(self, args: GoalArguments) -> RoomRequest:
        return self._bound(args)

    def strategy(self, asked: RoomRequest, deadline: Deadline) -> Strategy:
        from berth_descheduler.goals.make_room.strategy import MakeRoom  # noqa: PLC0415 - numpy takes a while to import

        return MakeRoom(asked, deadline)

    def unknown_names(self, args: GoalArguments, snapshot: Snapshot) -> Iterator[UnknownName]:
        return unknown_to_room(self._bound(args), snapshot)

    def _bound(self, args: GoalArguments) -> RoomRequest:
        own: RoomRequest = args.own
        return replace(own, room_of_guarantee=args.room_of_guarantee)

    def worth(self, plan: Plan) -> Merit:
        return sum(room.fitted for room in plan.room), sum(move.stands_alone for move in plan.moves)

    def sentence(self, plan: Plan) -> str:
        return describe_room(plan)

    def advantage(self, better: Plan, plan: Plan) -> str:
        better_fitted, plan_fitted = (sum(room.fitted for room in either_plan.room) for either_plan in (better, plan))
        if better_fitted > plan_fitted:
            return f"{instead_of(better_fitted, plan_fitted, 'pod')} would have room"
        return super().advantage(better, plan)

    def judgement(self, plan: Plan) -> str:
        return super().judgement(plan) if plan.room else ""

    def figures(self, plan: Plan) -> Iterator[Figure]:
        return room_figures(plan.room)

    def unused_rows(self, plan: Plan) -> Iterator[tuple[str, tuple[str, str]]]:
        return unused_by_rooms(plan.room)
