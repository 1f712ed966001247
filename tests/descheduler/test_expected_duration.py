"""How long a plan is expected to take: its moves as a run begins them, each for its pod's grace period and start."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from berth_core.migration_plans import MoveState, PlannedMove
from berth_core.reservations import ObjectReference
from berth_descheduler.migration.moves.memory import MoveMemory, remember
from berth_descheduler.migration.moves.order import MoveOrder
from berth_descheduler.planner.durations import estimate_seconds

ALL: None = None


def move(wave: int = 1, after: Sequence[int] | None = (), source: str = "", number: int = 0) -> PlannedMove:
    name = f"p{number}"
    return PlannedMove(
        namespace="shop",
        pod=name,
        pod_uid=name,
        source=source or f"from-{name}",
        target="t",
        wave=wave,
        after=None if after is None else tuple(after),
        owner=ObjectReference(api_version="apps/v1", kind="ReplicaSet", name=name, uid=name),
    )


@pytest.mark.parametrize(
    ("claim", "moves", "seconds", "want"),
    [
        ("nothing takes no time", [], [], 0),
        ("moves that wait for nothing run together", [move(), move(number=1)], [30, 50], 50),
        ("a chain takes what its moves take", [move(), move(2, [0], number=1)], [30, 50], 80),
        (
            "a slow move keeps back only what waits for it",
            [move(), move(number=1), move(2, [0], number=2)],
            [10, 600, 20],
            600,
        ),
        (
            "a move that names none waits for all of lower waves",
            [move(), move(number=1), move(2, ALL, number=2)],
            [10, 600, 20],
            620,
        ),
        (
            "no more are under way than the largest wave has",
            [move(), move(number=1), move(2, number=2)],
            [30, 30, 30],
            60,
        ),
        (
            "the longest chain comes first",
            [move(), move(number=1), move(number=2), move(2, [2], number=3), move(2, [2], number=4)],
            [10, 10, 100, 10, 10],
            110,
        ),
        (
            "moves of one wave off one source begin together",
            [move(), move(number=1), move(2, [0], "s", 2), move(2, [1], "s", 3)],
            [10, 90, 20, 20],
            110,
        ),
    ],
)
def test_a_plan_takes_as_long_as_its_moves_in_their_order(
    claim: str, moves: list[PlannedMove], seconds: list[int], want: int
) -> None:
    assert estimate_seconds(moves, seconds) == want, claim


def random_plan(numbers: random.Random) -> list[PlannedMove]:
    """Return moves which name some of those of lower waves, or none."""
    count = numbers.randint(1, 40)
    waves = sorted(numbers.randint(1, 6) for _ in range(count))
    moves: list[PlannedMove] = []
    for index, wave in enumerate(waves):
        lower = [other for other in range(index) if waves[other] < wave]
        after = None if numbers.random() < 0.1 else numbers.sample(lower, min(len(lower), numbers.randint(0, 3)))
        moves.append(move(wave, after, f"n{numbers.randint(0, 9)}", index))
    return moves


def run(moves: Sequence[PlannedMove], seconds: Sequence[int]) -> int:
    """Return when the last move of a run is over that begins moves as `MoveOrder` says."""
    progress: list[MoveMemory] = [remember("plan", index, one) for index, one in enumerate(moves)]
    order, ends, now = MoveOrder(progress, 100), dict[int, int](), 0
    while True:
        for group in order.fitting(beside=len(ends)):
            group.opened_at = float(now)
            ends |= {memory.index: now + seconds[memory.index] for memory in group.moves}
        if not ends:
            return now
        now, index = min((end, index) for index, end in ends.items())
        del ends[index]
        progress[index].status = msgspec.structs.replace(progress[index].status, state=MoveState.LANDED)


@pytest.mark.parametrize("seed", range(60))
def test_the_estimate_is_what_a_run_takes_whose_moves_take_that_long(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - makes plans, guards nothing
    moves = random_plan(numbers)
    seconds = [numbers.choice((10, 30, 90, 600)) for _ in moves]

    estimated = estimate_seconds(moves, seconds)

    assert estimated == run(moves, seconds)
    assert max(seconds) <= estimated <= sum(seconds)
