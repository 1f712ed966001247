"""The scene of `berth demo --scene starving`: a large pod that starves beside small ones."""

import time
from typing import Any, Final

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    STARVING_JOB_LABEL,
    STARVING_JOBS,
    Pod,
    Reservation,
    ReservationPhase,
    RunMode,
)
from berth_descheduler.capabilities.demo.cli.stage import POLL_SECONDS, Scene, Stage
from berth_kube import DESCHEDULER_POLICIES, PODS, RESERVATIONS

_TEAM: Final = "team"
_SMALL: Final = {"cpu": "5", "memory": "20Gi"}
_LARGE: Final = {"cpu": "15", "memory": "60Gi"}
_WAITS_SECONDS: Final = 5.0
"""For how long the scene looks that nothing gets in."""


def play_starving(stage: Stage) -> str:
    """A pod that wants a whole node gets one beside small pods that come and go."""
    (node,) = (f"node-{node_number:03d}" for node_number in range(STARVING.nodes))
    stage.make_namespace(_TEAM)
    _run_small(stage, "pod-1", "pod-2", "pod-3")
    stage.create_pods(_TEAM, ["pod-4"], _LARGE)
    stage.wait("pod-4 fits nowhere", lambda: _is_refused(stage, "pod-4"))
    stage.say(f"pod-1, pod-2 and pod-3 fill {node}; pod-4 wants as much as all three and waits")
    stage.end_pods(_TEAM, ["pod-1"])
    _run_small(stage, "pod-5")
    stage.say("pod-1 ends, and pod-5 takes its place at once: so it could go on for ever, and pod-4 starves")

    stage.client.create(DESCHEDULER_POLICIES, _policy_for_starving_jobs())
    stage.wait(f"{node} is kept", lambda: _phases(stage) == [ReservationPhase.WAITING])
    stage.wait_for_fence(node)
    stage.say(f"a policy with StarvingJobs keeps {node} for pod-4 until pods there have ended")
    stage.create_pods(_TEAM, ["pod-6", "pod-7"], _SMALL)
    stage.wait(
        "pod-6 and pod-7 fit nowhere", lambda: all(_is_refused(stage, f"pod-{pod_number}") for pod_number in (6, 7))
    )
    stage.end_pods(_TEAM, ["pod-2", "pod-3"])
    stage.say("pod-6 and pod-7 come, pod-2 and pod-3 end: there is room for both, and the fence keeps them off")
    until = time.monotonic() + _WAITS_SECONDS
    while time.monotonic() < until:
        stage.require("only pod-5 runs", _names_running(stage) == {"pod-5"})
        time.sleep(POLL_SECONDS)
    stage.end_pods(_TEAM, ["pod-5"])
    seconds = stage.wait("pod-4 runs", lambda: _names_running(stage) == {"pod-4"})
    stage.say(f"pod-5 ends, and pod-4 runs {seconds:.1f} s later")
    stage.end_pods(_TEAM, ["pod-4"])
    stage.wait("pod-6 and pod-7 run", lambda: _names_running(stage) == {"pod-6", "pod-7"})
    return (
        f"pod-4 ran {seconds:.1f} s after the last pod on {node} had ended: the node was kept for it, pod-6 and pod-7, "
        "which came later and fitted sooner, ran after it, and nothing was preempted or moved."
    )


def _run_small(stage: Stage, *names: str) -> None:
    stage.create_pods(_TEAM, names, _SMALL)
    stage.wait(f"{', '.join(names)} run", lambda: set(names) <= _names_running(stage))


def _names_running(stage: Stage) -> set[str]:
    return {pod.metadata.name for pod in stage.running(_TEAM, "")}


def _is_refused(stage: Stage, name: str) -> bool:
    return stage.client.get(PODS, name, namespace=_TEAM, type=Pod).condition("PodScheduled") == "False"


def _phases(stage: Stage) -> list[ReservationPhase]:
    raw_reservations = stage.client.list(RESERVATIONS, namespace=_TEAM, label_selector=STARVING_JOB_LABEL).items
    return [Reservation.read(raw_reservation).phase for raw_reservation in raw_reservations]


def _policy_for_starving_jobs() -> dict[str, Any]:
    args = {"starvingJobTimeThreshold": 0, "reservedNodePercent": 100, "moves": "Never"}
    profile = {
        "name": "default",
        "pluginConfig": [{"name": STARVING_JOBS, "args": args}],
        "plugins": {"balance": {"enabled": [STARVING_JOBS]}},
    }
    spec = {"trigger": {"interval": "10s"}, "mode": RunMode.AUTO.value, "profiles": [profile]}
    return {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": "starving-jobs"}, "spec": spec}


STARVING: Final = Scene("a large pod that starves beside small ones: the plugin StarvingJobs", 1, play_starving)
