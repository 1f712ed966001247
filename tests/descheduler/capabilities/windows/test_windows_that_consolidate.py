"""Which pods are moved for windows with `mayMove: Consolidate`."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from berth_core import (
    MAY_MOVE_ANNOTATION,
    WINDOW_MOVES,
    WINDOW_START_ANNOTATION,
    Capacity,
    Fence,
    InputError,
    Node,
    Pod,
    Reservation,
    Snapshot,
    format_timestamp,
)
from berth_core.labels import MAXIMUM_RUNTIME_ANNOTATION
from berth_descheduler.capabilities.windows.plugin import ReservationWindows
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins import default_plugins, settings_with
from berth_descheduler.report import summarise_plan
from berth_operator.reservation.manifests import FenceKind, build_placeholder, build_standing_fence
from berth_operator.settings import PlaceholderSettings
from builders import NOON, bare_pod, node, owner, pod, reservation, task, workload
from planner.clusters import apart, selector, term

START = NOON + timedelta(hours=1)
WEB = owner()


def settings(**args: Any) -> PlannerSettings:
    plugins = default_plugins()
    balance = Enabled(WINDOW_MOVES, ReservationWindows.parse(args))
    plugins = type(plugins)(balance=balance, filters=plugins.filters, pre_eviction_filters=plugins.pre_eviction_filters)
    return settings_with(PlannerSettings(plugins=plugins).at(NOON), plugins)


def window(*, cpu: str = "4", replicas: int = 1, **notes: str) -> Reservation:
    """The Reservation of a window that starts in an hour, as the operator makes it."""
    annotations = {WINDOW_START_ANNOTATION: format_timestamp(START), MAY_MOVE_ANNOTATION: "Consolidate", **notes}
    return reservation(
        "nightly",
        tasks=[task(replicas=replicas, cpu=cpu, memory=None)],
        capacity=Capacity.WHEN_FREE,
        fence=Fence.NODE,
        annotations=annotations,
    )


def slot(of: Reservation, index: int = 0, *, on: str = "n1") -> Pod:
    """A placeholder that waits for a node, as the operator makes it."""
    settings = PlaceholderSettings()
    body = build_placeholder(of, of.spec.tasks[0], index, priority=0, deadline_seconds=None, settings=settings, node=on)
    return msgspec.convert({**body, "status": {"phase": "Pending"}}, Pod)


def fence(on: str) -> tuple[Pod, ...]:
    bodies = [build_standing_fence(on, f"f-{on}-{k}", k, seconds=60, settings=PlaceholderSettings()) for k in FenceKind]
    return tuple(msgspec.convert({**body, "status": {"phase": "Running"}}, Pod) for body in bodies)


def web(name: str, on: str, *, cpu: str = "2", **rest: Any) -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=WEB, **rest)


def nodes(**cpus: str) -> tuple[Node, ...]:
    return tuple(node(name, cpu=cpu) for name, cpu in cpus.items())


def planned(machines: tuple[Node, ...], pods: Any, *reservations: Reservation, **args: Any) -> Plan:
    wanted = sum(one.controller == WEB for one in pods)
    snapshot = Snapshot(
        nodes=machines, pods=tuple(pods), reservations=reservations, workloads=(workload(replicas=wanted),)
    )
    return plan(snapshot, settings(**args))


def moves(made: Plan) -> Mapping[str, str]:
    return {move.pod: move.target for move in made.moves}


def test_pods_are_moved_off_a_node_that_a_window_waits_for() -> None:
    nightly = window()
    pods = [web("web-0", "n1"), web("web-1", "n2"), slot(nightly), *fence("n1")]
    made = planned(nodes(n1="4", n2="4"), pods, nightly)
    assert moves(made) == {"web-0": "n2"}
    assert made.moves[0].reason == "ReservationWindows: default/nightly waits for the node"
    assert made.rooms == ()
    assert "1 move for pods" in summarise_plan(made)


def test_pods_that_keep_apart_leave_for_nodes_without_one() -> None:
    nightly = window()
    keep_apart = {"labels": {"app": "web"}, "affinity": apart(term(select=selector(app="web")))}
    pods = [web("web-0", "n1", **keep_apart), web("web-1", "n2", cpu="1", **keep_apart), slot(nightly), *fence("n1")]
    assert moves(planned(nodes(n1="4", n2="4", n3="4"), pods, nightly)) == {"web-0": "n3"}


def test_no_more_are_moved_than_the_slots_need() -> None:
    nightly = window(cpu="2")
    pods = [web(f"web-{number}", "n1", cpu="1") for number in range(4)]
    made = planned(nodes(n1="4", n2="8"), [*pods, slot(nightly), *fence("n1")], nightly)
    assert len(made.moves) == 2


def test_several_slots_on_several_nodes_are_served_as_far_as_there_is_room_elsewhere() -> None:
    nightly = window(replicas=2)
    pods = [web("web-0", "n1"), web("web-1", "n2"), slot(nightly, 0, on="n1"), slot(nightly, 1, on="n2")]
    made = planned(nodes(n1="4", n2="4", n3="2"), [*pods, *fence("n1"), *fence("n2")], nightly)
    assert len(made.moves) == 1
    assert set(moves(made).values()) == {"n3"}, "no pod goes to a node that is fenced"


def test_a_pod_that_may_not_move_stays_and_the_plan_says_why() -> None:
    nightly = window()
    lonely = bare_pod("lonely", node="n1", cpu="2", memory=None)
    made = planned(nodes(n1="4", n2="4"), [lonely, slot(nightly), *fence("n1")], nightly)
    assert not made.moves
    assert summarise_plan(made).startswith("Nothing to move")


def test_a_pod_that_ends_before_the_start_is_left_to_end() -> None:
    nightly = window()
    runtime = {MAXIMUM_RUNTIME_ANNOTATION: "30m"}
    short = web("short", "n1", annotations=runtime)
    short = replace(short, status=replace(short.status, start_time=format_timestamp(NOON)))
    pods = [short, web("long", "n1", cpu="1"), slot(nightly), *fence("n1")]
    assert moves(planned(nodes(n1="4", n2="4"), pods, nightly)) == {"long": "n2"}


@pytest.mark.parametrize(
    ("why", "of", "fences", "args"),
    [
        ("the window does not allow it", window(**{MAY_MOVE_ANNOTATION: "Never"}), fence("n1"), {}),
        ("others would take what becomes free", window(), (), {}),
        ("the policy leaves its namespace out", window(), fence("n1"), {"namespaces": {"exclude": ["default"]}}),
    ],
)
def test_nothing_is_moved_where(why: str, of: Reservation, fences: tuple[Pod, ...], args: dict[str, Any]) -> None:
    pods = [web("web-0", "n1"), slot(of), *fences]
    assert not planned(nodes(n1="4", n2="4"), pods, of, **args).moves, why


def test_a_placeholder_of_somebody_else_is_served_by_no_move() -> None:
    nightly = window()
    forged = replace(slot(nightly), metadata=replace(slot(nightly).metadata, namespace="default"))
    assert not planned(nodes(n1="4", n2="4"), [web("web-0", "n1"), forged, *fence("n1")], nightly).moves


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(InputError, match="only namespaces"):
        ReservationWindows.parse({"moves": "Fewest"})
