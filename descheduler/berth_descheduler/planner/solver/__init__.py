"""Searches for good packings: columns, filling, choice of nodes, bounds, move order.

It is pure and needs numpy.
"""

from berth_descheduler.planner.solver.bounds import (
    least_cost,
    most_freed_by_number,
    most_freed_by_volume,
    most_that_fit,
    most_worth,
    worth_by_volume,
)
from berth_descheduler.planner.solver.draining import MOST_ROUNDS, Candidates, Draining, DrainLimits, DrainSearch
from berth_descheduler.planner.solver.exact import (
    ExactDraining,
    ExactRoom,
    Reached,
    RoomQuestion,
    is_small_enough,
    solve_draining,
    solve_room,
)
from berth_descheduler.planner.solver.filling import Filled, FillLimits
from berth_descheduler.planner.solver.full_nodes import pack_fully
from berth_descheduler.planner.solver.growing import DependentPods
from berth_descheduler.planner.solver.joint_draining import JointDraining, is_mostly_tied
from berth_descheduler.planner.solver.model import Ints, PackingModel, build_packing_model
from berth_descheduler.planner.solver.repairing import PackingRepair
from berth_descheduler.planner.solver.room_bound import RoomBound, bound_room
from berth_descheduler.planner.solver.room_improving import RoomGoal, improve_room
from berth_descheduler.planner.solver.room_search import RoomSearch, Want
from berth_descheduler.planner.solver.sequencing import Transition, apply_transition
from berth_descheduler.planner.solver.spreads import KindSpread, read_spreads
from berth_descheduler.planner.solver.stuck_nodes import without_undrainable_nodes

__all__ = [
    "MOST_ROUNDS",
    "Candidates",
    "DependentPods",
    "DrainLimits",
    "DrainSearch",
    "Draining",
    "ExactDraining",
    "ExactRoom",
    "FillLimits",
    "Filled",
    "Ints",
    "JointDraining",
    "KindSpread",
    "PackingModel",
    "PackingRepair",
    "Reached",
    "RoomBound",
    "RoomGoal",
    "RoomQuestion",
    "RoomSearch",
    "Transition",
    "Want",
    "apply_transition",
    "bound_room",
    "build_packing_model",
    "improve_room",
    "is_mostly_tied",
    "is_small_enough",
    "least_cost",
    "most_freed_by_number",
    "most_freed_by_volume",
    "most_that_fit",
    "most_worth",
    "pack_fully",
    "read_spreads",
    "solve_draining",
    "solve_room",
    "without_undrainable_nodes",
    "worth_by_volume",
]
