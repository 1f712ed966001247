"""Drains whose program is killed, and that the next one continues."""

# ruff: noqa: ANN401 - it passes on whatever the client is called with

import itertools
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from berth_core.migration_plans import MoveMethod
from berth_descheduler.capabilities.drain.plugin import NodeDrain
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome
from berth_descheduler.planner import WaveLimits
from berth_descheduler.plugins import on_demand_settings
from berth_kube.resources import (
    MIGRATION_PLANS,
    NODES,
)
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock
from descheduler.fake_cluster import Raw
from descheduler.test_cycle_killed_anywhere import MortalProcess, is_killed, landing_late
from descheduler.test_surge_of_a_cycle import Surging, is_ready
from planner_settings import with_settings


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("method", MoveMethod)
def test_a_killed_drain_goes_on_with_siblings_one_at_a_time(method: MoveMethod) -> None:
    """Killed before every eighth of its calls; the next goes on from the places that are held."""
    plugin = NodeDrain(nodes=frozenset({"low-1", "low-2"}))
    planner = with_settings(PLANNER, waves=WaveLimits(per_controller=1, per_wave=200))
    planner = on_demand_settings(planner, plugin)
    settings = plugin.carried_out(replace(SETTINGS, moves=method))

    def drain(client: Any, clock: Any) -> Outcome:
        context = CycleContext(client, clock, CycleObserver(), threading.Event())
        return Cycle(context, settings, planner).run()

    calls_to_live = 0
    for calls_to_live in itertools.count(step=8):
        world = Surging()
        for name in ("low-1", "low-2"):
            world.cluster.merge_patch(NODES, name, {"spec": {"unschedulable": True}})
        beside = count_siblings(world, late=method is MoveMethod.EVICT)
        process = MortalProcess(world.cluster, calls_to_live)
        if not is_killed(process, partial(drain, process, process)):
            break

        drain(world.cluster, BriskClock())

        when = f"killed before call {calls_to_live}"
        assert [world.cluster.pods_on(name) for name in ("low-1", "low-2")] == [[], []], when
        assert min(beside, default=1) == 1, when
        assert [len(world.owned(app)) for app in ("web", "api", "big")] == [2, 1, 2], when
        plans = world.cluster.raw(MIGRATION_PLANS)
        moves = [pair for one in plans for pair in zip(one["spec"]["moves"], one["status"]["moves"], strict=True)]
        landed = [(move["target"], status["node"]) for move, status in moves if status["state"] == "Landed"]
        assert [target == node for target, node in landed] == [True] * 3, when
    assert calls_to_live > 40


def count_siblings(world: Surging, *, late: bool) -> list[int]:
    """Return a list that gets, for each pod of web that is evicted, how many others of them serve then."""
    if late:
        landing_late(world.cluster)
    land, found = world.cluster.land, []

    def note(pod: Raw) -> None:
        app, name = pod["metadata"]["labels"]["app"], pod["metadata"]["name"]
        others = [one["metadata"] | one for one in world.owned(app) if one["metadata"]["name"] != name]
        if app == "web":
            found.append(min(1, sum(is_ready(one) and "deletionTimestamp" not in one for one in others)))
        land(pod)

    world.cluster.land = note
    return found
