"""Which moves of a plan are under way together: each waits for those that it names, and the limits of waves hold."""

import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from berth_core.migration_plans import MoveState, PlannedMove
from berth_core.reservations import ObjectReference
from berth_descheduler.migration.moves.memory import MoveMemory, remember
from berth_descheduler.migration.moves.order import MoveGroup, MoveOrder


def move(
    pod: str, *, wave: int = 1, source: str = "", after: Sequence[int] | None = (), owner: str = "", target: str = "t"
) -> PlannedMove:
    controller = ObjectReference(api_version="apps/v1", kind="ReplicaSet", name=owner or f"of-{pod}", uid=owner or pod)
    return PlannedMove(
        namespace="shop",
        pod=pod,
        pod_uid=f"uid-{pod}",
        source=source or f"from-{pod}",
        target=target,
        wave=wave,
        after=None if after is None else tuple(after),
        owner=controller,
    )


def progress_of(moves: Sequence[PlannedMove]) -> list[MoveMemory]:
    return [remember("plan", index, move) for index, move in enumerate(moves)]


def end(*moves: MoveMemory, state: MoveState = MoveState.LANDED) -> None:
    for one in moves:
        one.status = msgspec.structs.replace(one.status, state=state)


def open_all(order: MoveOrder) -> list[MoveGroup]:
    opened = order.fitting(beside=len(order.under_way))
    for group in opened:
        group.opened_at = 1.0
    return opened


def under_way(order: MoveOrder) -> set[str]:
    return {memory.move.pod for memory in order.under_way}


def test_a_move_begins_once_those_it_names_are_over_whatever_else_is_under_way() -> None:
    moves = progress_of([move("quick"), move("slow"), move("next", wave=2, after=[0])])
    order = MoveOrder(moves, 2)
    open_all(order)
    assert under_way(order) == {"quick", "slow"}

    end(moves[0])
    open_all(order)

    assert under_way(order) == {"slow", "next"}


def test_without_names_a_move_waits_for_the_whole_wave_before_it() -> None:
    moves = progress_of([move("quick"), move("slow"), move("next", wave=2, after=None)])
    order = MoveOrder(moves, 2)
    open_all(order)
    end(moves[0])
    assert open_all(order) == []

    end(moves[1], state=MoveState.SKIPPED)
    open_all(order)

    assert under_way(order) == {"next"}


def test_of_moves_that_may_begin_those_with_the_longest_chain_behind_them_come_first() -> None:
    chain = [move("head", source="a"), move("middle", wave=2, after=[2]), move("last", wave=3, after=[3])]
    moves = progress_of([move("lone"), move("other"), *chain, move("short"), move("end", wave=2, after=[5])])
    order = MoveOrder(moves, 2)
    open_all(order)
    assert under_way(order) == {"head", "short"}

    end(moves[2])
    open_all(order)

    assert under_way(order) == {"middle", "short"}, "although two of the first wave have not begun"


@pytest.mark.parametrize("after", [[7], [-1], [2], [3]], ids=["no-such-move", "negative", "itself", "same-wave"])
def test_names_that_cannot_be_right_count_as_none(after: list[int]) -> None:
    moves = progress_of([move("quick"), move("slow"), move("next", wave=2, after=after), move("last", wave=2)])
    order = MoveOrder(moves, 25)
    open_all(order)
    end(moves[0])
    assert "next" not in {memory.move.pod for group in order.fitting(beside=1) for memory in group.moves}

    end(moves[1])
    open_all(order)

    assert "next" in under_way(order)


def test_the_next_wave_of_a_controller_or_pod_waits_for_its_wave_before_whatever_the_plan_says() -> None:
    web = [move("web-1", owner="web"), move("api"), move("web-2", owner="web", wave=3)]
    moves = progress_of(web)
    order = MoveOrder(moves, 25)
    open_all(order)
    end(moves[1])
    assert open_all(order) == []

    twice = progress_of([move("aside"), move("other"), move("aside", wave=2, source="t")])
    order = MoveOrder(twice, 25)
    open_all(order)
    end(twice[1])
    assert open_all(order) == []


def test_a_move_that_was_skipped_early_is_over_only_with_those_that_it_waited_for() -> None:
    moves = progress_of([move("slow"), move("skipped", wave=2, after=[0]), move("last", wave=3, after=[1])])
    order = MoveOrder(moves, 25)
    open_all(order)
    end(moves[1], state=MoveState.SKIPPED)
    assert open_all(order) == [], "its pod may still be where the last one goes"

    end(moves[0])
    open_all(order)

    assert under_way(order) == {"last"}


def test_the_moves_of_a_wave_off_one_source_begin_together_when_all_of_them_may() -> None:
    moves = progress_of(
        [
            *(move("first"), move("other"), move("third")),
            *(move("a", wave=2, source="s", after=[0]), move("b", wave=2, source="s", after=[1])),
        ]
    )
    order = MoveOrder(moves, 3)
    open_all(order)
    end(moves[0])
    assert open_all(order) == []

    end(moves[1])
    open_all(order)

    assert under_way(order) == {"third", "a", "b"}


def test_moves_that_would_be_too_many_at_once_wait_and_keep_back_those_behind_them() -> None:
    moves = progress_of([move("a"), move("b"), move("c", wave=2, source="s"), move("d", wave=2, source="s"), move("e")])
    order = MoveOrder(moves, 3)
    open_all(order)
    assert under_way(order) == {"a", "b", "e"}

    end(moves[0])
    assert open_all(order) == [], "a smaller one behind would keep the pair waiting for ever"

    end(moves[1])
    open_all(order)

    assert under_way(order) == {"c", "d", "e"}


def test_no_more_are_under_way_than_the_largest_wave_has() -> None:
    moves = progress_of([move("a"), move("b"), move("c", wave=2), move("d", wave=3)])
    assert MoveOrder(moves, 25).max_open == 2
    assert MoveOrder(moves, 1).max_open == 1


def test_what_an_interrupted_run_began_goes_on_first_however_much_it_is() -> None:
    moves = progress_of([move("a"), move("b"), move("c", wave=2, after=[0]), move("d", wave=3, after=[0])])
    end(moves[2], state=MoveState.RESERVED)
    order = MoveOrder(moves, 1, begun={"3"})

    opened = open_all(order)

    assert [one.move.pod for group in opened for one in group.moves] == ["c", "d"]


def test_a_wave_runs_from_when_the_last_of_it_began() -> None:
    moves = progress_of([move("a"), move("b"), move("c", wave=2)])
    order = MoveOrder(moves, 25)
    for group, opened_at in zip(order.groups, (3.0, 8.0, None), strict=True):
        group.opened_at = opened_at
    end(moves[0])
    assert [(wave, begun, len(opened)) for wave, begun, opened in order.open_waves()] == [(1, 8.0, 2)]

    end(moves[1])

    assert list(order.open_waves()) == []


def random_plan(numbers: random.Random) -> list[PlannedMove]:
    """Return moves in the order of their waves, which name some of those of lower waves, or none."""
    count = numbers.randint(1, 30)
    waves = sorted(numbers.randint(1, 6) for _ in range(count))
    found: list[PlannedMove] = []
    for index, wave in enumerate(waves):
        lower = [other for other in range(index) if waves[other] < wave]
        after = None if numbers.random() < 0.1 else numbers.sample(lower, min(len(lower), numbers.randint(0, 3)))
        source, owner = f"n{numbers.randint(0, 9)}", f"web-{numbers.randint(0, 5)}"
        found.append(move(f"p{index}", wave=wave, source=source, owner=owner, after=after))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_move_begins_in_the_end_and_no_limit_of_the_waves_is_broken_meanwhile(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - makes plans, guards nothing
    plan = random_plan(numbers)
    moves = progress_of(plan)
    largest_by_owner = Counter((one.owner, one.wave) for one in plan)
    order = MoveOrder(moves, 25)
    for _ in range(len(moves) + 1):
        open_all(order)
        running = order.under_way
        assert len(running) <= order.max_open
        waves_by_owner = {one.replicas: one.move.wave for one in running}
        assert all(waves_by_owner[one.replicas] == one.move.wave for one in running)
        by_owner = Counter((one.move.owner, one.move.wave) for one in running)
        assert all(by_owner[key] <= largest_by_owner[key] for key in by_owner)
        for one in running:
            assert all(moves[other].finished for other in one.move.after or ())
        if not running:
            break
        end(numbers.choice(running), state=numbers.choice((MoveState.LANDED, MoveState.FAILED, MoveState.SKIPPED)))
    assert all(one.finished for one in moves)


# --- places that a drain holds ahead


def chain(*, waves: Sequence[int] = (1, 2, 3), owner: str = "web") -> list[PlannedMove]:
    """Return moves of one controller, which the waves have one after another."""
    return [move(f"{owner}-{number}", wave=wave, owner=owner) for number, wave in enumerate(waves)]


def in_turn(order: MoveOrder) -> set[str]:
    waiting = order.not_in_turn()
    return {memory.move.pod for memory in order.under_way if memory.index not in waiting}


def test_siblings_begin_together_and_their_pods_go_one_after_another() -> None:
    moves = progress_of([*chain(), move("api")])
    order = MoveOrder(moves, 25, free=range(4))
    open_all(order)
    assert (under_way(order), in_turn(order)) == ({"web-0", "web-1", "web-2", "api"}, {"web-0", "api"})
    assert [(memory.turn.begins_with, memory.turn.number) for memory in moves] == [(1, 1), (1, 2), (1, 3), (1, 1)]

    end(moves[0])

    assert in_turn(order) == {"web-1", "api"}
    assert {memory.move.pod for memory in order.open_moves} == {"web-0", "web-1", "web-2", "api"}, (
        "all count its places"
    )


@pytest.mark.parametrize(
    ("claim", "free", "moves"),
    [
        ("a pod that rules tie to others", [0, 2], chain()),
        ("what waits for such a pod", [1, 2], chain()),
        ("siblings whose places would be handed over in another order", [0, 1, 2], chain(waves=(2, 1, 3))),
    ],
)
def test_a_place_is_not_held_ahead_that_may_not_be_free_before(
    claim: str, free: Sequence[int], moves: list[PlannedMove]
) -> None:
    order = MoveOrder(progress_of(moves), 25, free=free)
    open_all(order)
    assert len(under_way(order)) == 1, claim


def test_no_more_places_are_held_ahead_than_moves_may_be_under_way() -> None:
    moves = progress_of([*chain(), *chain(owner="api")])
    order = MoveOrder(moves, 4, free=range(6))
    open_all(order)
    assert under_way(order) == {"web-0", "web-1", "api-0", "api-1"}

    end(moves[0])
    open_all(order)

    assert under_way(order) == {"web-1", "web-2", "api-0", "api-1"}


def test_a_move_that_waits_for_its_turn_has_its_time_before_it() -> None:
    moves = progress_of(chain())
    order = MoveOrder(moves, 25, free=range(3))
    open_all(order)
    end(moves[0])
    assert order.not_in_turn(9.0) == {2}

    assert [(wave, begun) for wave, begun, _ in order.open_waves()] == [(2, 1.0), (3, 9.0)]


@pytest.mark.parametrize("seed", range(60))
def test_with_places_held_ahead_every_pod_has_its_turn_and_none_before_it(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - makes plans, guards nothing
    plan = random_plan(numbers)
    moves = progress_of(plan)
    begun = [str(index) for index in range(len(plan)) if numbers.random() < 0.1]
    order = MoveOrder(moves, numbers.randint(3, 25), begun, free=[*range(0, len(plan), numbers.randint(1, 3))])
    for _ in range(len(moves) + 1):
        open_all(order)
        waiting = order.not_in_turn()
        running = [memory for memory in order.under_way if memory.index not in waiting]
        of_owners = [memory for memory in running if memory.turn.ahead]
        assert len({(one.replicas, one.move.wave) for one in of_owners}) == len({one.replicas for one in of_owners})
        for one in of_owners:
            assert all(moves[other].finished for other in one.move.after or ())
        if not running:
            break
        end(numbers.choice(running), state=numbers.choice((MoveState.LANDED, MoveState.FAILED, MoveState.SKIPPED)))
    assert all(one.finished for one in moves)
