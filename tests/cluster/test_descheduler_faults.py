"""A run that fails half-way does no harm, and the next run finishes its work.

Calls fail and stall, the API server goes away, operators die, nodes go, hungry pods come: afterwards every pod runs and
nothing of a run is left.
"""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from background_runs import LONGEST_SECONDS, BackgroundRun
from berth_kube.errors import NotFoundError
from berth_kube.resources import DEPLOYMENTS, NODES, PODS
from descheduling_stage import MOVERS, Scene
from fault_proxy import FaultProxy
from faults import BalancerFaultAt, Call, Fault, FaultKind, NoFaults
from outages import RUN_OPTIONS, RUN_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

PEACE_AFTER_AN_OUTAGE_SECONDS: Final = 780.0
"""On a machine that is busy with other tests as well."""
PEACE_SECONDS: Final = 120.0
"""Pods of a node that is gone are cleared away a minute later."""
HASTE: Final = ("--reserve-timeout=5s", "--land-timeout=5s", "--ready-timeout=5s", "--pending-wait=5s")


# --- calls that fail --------------------------------------------------------------------------------------------------


@dataclass
class Some:
    """Disturbs a share of the calls, each with one of a few kinds; drawn from a seed."""

    kinds: dict[FaultKind, float]
    share: float
    watches: bool = False
    met: set[FaultKind] = field(default_factory=set)
    _draw: random.Random = field(default_factory=lambda: random.Random(5))  # noqa: S311 - it must be the same again
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def decide(self, call: Call) -> Fault:
        with self._lock:
            if call.is_watch is not self.watches or self._draw.random() >= self.share:
                return Fault()
            kind = self._draw.choice(list(self.kinds))
            if kind is FaultKind.CONFLICT and not call.is_write:
                return Fault()
            self.met.add(kind)
            return Fault(kind, self.kinds[kind])

    def hold(self, call: Call) -> None:
        """Hold nothing."""


DISTURBANCES: Final = {
    "calls are refused, lost or late": lambda: Some(
        {
            FaultKind.TOO_MANY: 0,
            FaultKind.SERVER_ERROR: 0,
            FaultKind.UNAVAILABLE: 0,
            FaultKind.CONFLICT: 0,
            FaultKind.RESET: 0,
            FaultKind.LOST_ANSWER: 0,
            FaultKind.STALL: 1.0,
            FaultKind.DELAY: 1.0,
        },
        share=0.2,
    ),
    "watches are cut and forget their place": lambda: Some(
        {FaultKind.CUT: 1.0, FaultKind.GONE: 0, FaultKind.RESET: 0}, share=0.7, watches=True
    ),
    "the balancer accepts and closes": lambda: Some({FaultKind.NO_BACKEND: 1.5}, share=0.03),
}


@pytest.mark.parametrize("disturb", DISTURBANCES.values(), ids=DISTURBANCES)
def test_a_run_whose_calls_are_disturbed_harms_nobody_when(
    scene: Scene, tmp_path: Path, disturb: Callable[[], Some]
) -> None:
    with FaultProxy(scene.sandbox.service_account_kubeconfig("berth-descheduler")) as proxy:
        through = proxy.write_kubeconfig(tmp_path / "through-the-proxy.yaml")
        plan = disturb()
        proxy.plan = plan
        run = scene.start(*RUN_OPTIONS, "--taint-freed", kubeconfig=through)
        run.wait(RUN_SECONDS)
    assert plan.met, "something was disturbed"
    end_what_was_begun(scene)


def test_a_run_goes_on_after_its_balancer_has_accepted_and_closed_for_a_moment(scene: Scene, tmp_path: Path) -> None:
    with FaultProxy(scene.sandbox.service_account_kubeconfig("berth-descheduler")) as proxy:
        through = proxy.write_kubeconfig(tmp_path / "through-the-proxy.yaml")
        proxy.plan = plan = BalancerFaultAt(lambda call: call.path.endswith("/eviction"), seconds=1.5)
        run = scene.start("--pending-wait=5s", kubeconfig=through)
        exit_code = run.wait(RUN_SECONDS)
    assert plan.has_happened
    assert exit_code == 0, run.outcome
    assert {state.value for state in scene.states()} == {"Landed"}
    scene.require_peace(within_seconds=PEACE_SECONDS)


class NoLease:
    """Lets no call for the Lease of runs through."""

    def decide(self, call: Call) -> Fault:
        return Fault(FaultKind.UNAVAILABLE if call.path.endswith("/leases/berth-descheduler") else FaultKind.NONE)

    def hold(self, call: Call) -> None:
        """Hold nothing."""


def test_a_run_that_loses_its_lease_takes_it_again_and_goes_on(scene: Scene, tmp_path: Path) -> None:
    with FaultProxy(scene.sandbox.service_account_kubeconfig("berth-descheduler")) as proxy:
        through = proxy.write_kubeconfig(tmp_path / "through-the-proxy.yaml")
        for name in MOVERS:  # else all pods could have moved before the Lease is lost
            scene.client.merge_patch(DEPLOYMENTS, name, {"spec": {"minReadySeconds": 15}}, namespace=scene.namespace)
        run = scene.start("--moves=Surge", "--pending-wait=5s", kubeconfig=through)
        scene.wait_for("places are reserved", scene.has_begun)
        proxy.plan = NoLease()
        scene.wait_for("the Lease is lost", lambda: "cycle cut off" in run.tail(1000))
        proxy.plan = NoFaults()
        exit_code = run.wait(RUN_SECONDS)
    assert exit_code == 0, run.outcome
    assert {state.value for state in scene.states()} == {"Landed"}
    assert {plan.phase.value for plan in scene.plans()} == {"Succeeded"}
    scene.require_peace(within_seconds=PEACE_SECONDS)


def end_what_was_begun(scene: Scene) -> None:
    """Make a run that nothing disturbs, and require that nothing is left of any."""
    scene.run(*RUN_OPTIONS)
    scene.require_peace(within_seconds=PEACE_SECONDS)


# --- others go away ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(LONGEST_SECONDS + 60)
def test_an_api_server_that_is_away_for_a_minute_leaves_nothing_behind(outage_in_a_run: BackgroundRun[float]) -> None:
    assert outage_in_a_run.result() < PEACE_AFTER_AN_OUTAGE_SECONDS


# --- nodes go away ----------------------------------------------------------------------------------------------------


def delete_node(scene: Scene, node: str) -> None:
    """Take a node and its pods away, and one of the pods that have to be on such a node."""
    scene.client.delete(NODES, node)
    left = {"spec": {"replicas": len(scene.high) - 1}}
    scene.client.merge_patch(DEPLOYMENTS, "base", left, namespace=scene.namespace)
    scene.high = tuple(name for name in scene.high if name != node)
    for pod in scene.pods(field_selector=f"spec.nodeName={node}"):
        with suppress(NotFoundError):
            scene.client.delete(PODS, pod.metadata.name, namespace=scene.namespace, grace_seconds=0)


def cordon_node(scene: Scene, node: str) -> None:
    scene.cordon(node)


def let_node_be_unready(scene: Scene, node: str) -> None:
    """Let a node say that it is not ready, until its kubelet speaks again."""
    unready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    scene.client.merge_patch(NODES, node, {"status": {"conditions": [unready]}}, subresource="status")


TROUBLES: Final[dict[str, Callable[[Scene, str], None]]] = {
    "is deleted": delete_node,
    "is cordoned": cordon_node,
    "is not ready": let_node_be_unready,
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_run_goes_on_with_the_rest_when_a_target(scene: Scene, trouble: Callable[[Scene, str], None]) -> None:
    run = scene.start(*HASTE)
    scene.wait_for("places are reserved", scene.has_begun)
    target = scene.plans()[0].spec.moves[-1].target
    trouble(scene, target)
    run.wait(RUN_SECONDS)
    assert all(state.terminal for state in scene.states())
    scene.cordon(*scene.high, closed=False)
    end_what_was_begun(scene)
