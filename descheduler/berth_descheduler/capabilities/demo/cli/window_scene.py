"""The scene of `berth demo --scene window`: capacity that is held by the clock."""

import time
from datetime import datetime, timedelta
from typing import Final

from berth_core import ReservationWindow, SystemClock, WindowState, format_timestamp
from berth_descheduler.capabilities.demo.cli.stage import Scene, Stage, number_names
from berth_kube import RESERVATION_WINDOWS

_BATCH: Final = "batch"
_LOW: Final = {"cpu": "4", "memory": "16Gi"}
_LOW_PER_NODE: Final = 4
_PLACES: Final = 10
_LEAD: Final = timedelta(minutes=30)
"""From the creation of the window to its start; it reserves before, so that the scene need not last as long."""
_RUNTIME_SECONDS: Final = 10
_HUNGRY: Final = 8


def play_window(stage: Stage) -> str:
    """A ReservationWindow has ten places ready before its start, while everything else is full."""
    idle_node, ending_node, *other_nodes = (f"node-{node_number:03d}" for node_number in range(WINDOW.nodes))
    stage.make_namespace(_BATCH)
    short_names = number_names("short-", _LOW_PER_NODE)
    runtime = {"volcano.sh/maximum-runtime": f"{_RUNTIME_SECONDS}s"}
    stage.create_pods(_BATCH, short_names, _LOW, runtime, nodeName=ending_node)
    for node in other_nodes:
        stage.create_pods(_BATCH, number_names(f"long-{node}-", _LOW_PER_NODE), _LOW, nodeName=node)
    stage.wait("the low pods run", lambda: len(stage.running(_BATCH, "")) == _LOW_PER_NODE * (1 + len(other_nodes)))
    ends_at = time.monotonic() + _RUNTIME_SECONDS
    stage.say(f"{idle_node} is idle; {ending_node} is full of pods that say they run for {_RUNTIME_SECONDS} s at most;")
    stage.say(f"{len(other_nodes)} more nodes are full of pods that run for days and must not be preempted")

    start = _create_window(stage)
    stage.say(f"a ReservationWindow is to have 32 cpu for {_PLACES} pods at {format_timestamp(start)},")
    stage.say("and reserves up to 2h before; so it does now")
    stage.wait("the window holds what is idle", lambda: _held(stage) >= _PLACES // 2)
    stage.wait_for_fence(ending_node)
    stage.say(f"{_held(stage)} places are held on {idle_node}; the others wait for {ending_node}, which is fenced")
    stage.create_pods(_BATCH, number_names("hungry-", _HUNGRY), _LOW)
    stage.say(f"{_HUNGRY} hungry pods come, which want whatever becomes free")
    stage.wait("the short pods have done their work", lambda: time.monotonic() >= ends_at)
    stage.end_pods(_BATCH, short_names)
    stage.say(f"the pods on {ending_node} have ended")
    stage.wait("all places are held", lambda: _held(stage) == _PLACES)
    stage.require("the window has not begun", _read_window(stage).status.state == WindowState.RESERVING)
    stage.say(f"all {_PLACES} places are held before the start; the pods come, and may be early")

    reserveable = {"volcano.sh/reserveable": "true"}
    stage.create_pods(_BATCH, number_names("nightly-", _PLACES), {"cpu": "3200m", "memory": "6Gi"}, reserveable)
    seconds = stage.wait("the ten pods run", lambda: len(stage.running(_BATCH, "nightly-")) == _PLACES)
    nodes = {pod.spec.node_name for pod in stage.running(_BATCH, "nightly-")}
    stage.require(f"they run on {idle_node} and {ending_node}", nodes == {idle_node, ending_node})
    stage.require("no hungry pod got in", not stage.running(_BATCH, "hungry-"))
    running_pods = len(stage.running(_BATCH, "long-"))
    stage.require("no pod was preempted or moved", running_pods == _LOW_PER_NODE * len(other_nodes))
    return (
        f"{_PLACES} pods ran {seconds:.1f} s after they came in a full cluster: their places were held by the clock, "
        f"{_HUNGRY} hungry pods got none of them, and none of {running_pods} other pods was preempted or moved."
    )


def _create_window(stage: Stage) -> datetime:
    """Create a window with the proposal's numbers, and return its start."""
    start = (SystemClock().now() + _LEAD).replace(second=0, microsecond=0)
    spec = {
        "schedule": f"{start.minute} {start.hour} * * *",
        "duration": "1h",
        "startReserveAgo": "2h",
        "podNumToReserve": _PLACES,
        "resources": {"cpu": "32", "memory": "64Gi"},
    }
    manifest_head = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "ReservationWindow",
        "metadata": {"name": "nightly"},
    }
    stage.client.create(RESERVATION_WINDOWS, {**manifest_head, "spec": spec}, namespace=_BATCH)
    return start


def _read_window(stage: Stage) -> ReservationWindow:
    return ReservationWindow.read(stage.client.get(RESERVATION_WINDOWS, "nightly", namespace=_BATCH))


def _held(stage: Stage) -> int:
    return sum(occurrence.held for occurrence in _read_window(stage).status.active)


WINDOW: Final = Scene("capacity that is held by the clock: a ReservationWindow", 5, play_window)
