"""A run by a person that loses its Lease tries for it again and goes on with its plan; none is left Running."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from berth_descheduler.cli import run as commands
from berth_descheduler.cli.lost_leases import run_persistently
from berth_descheduler.cli.main import run as berth
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.plans.leases import run_lease
from berth_descheduler.migration.plans.loop import LeaseLostError
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Verdict
from berth_kube.errors import ServerError, UntrustedServerError
from berth_kube.leases import LeaseHolder
from berth_kube.resources import LEASES, MIGRATION_PLANS, PODS
from cut_off_cycles import cut_off_first_cycle, phases
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock, states
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster

LANDED = dict.fromkeys(("web-1", "web-2", "api-1"), ("Landed", ""))


class Notes(CycleObserver):
    """Records why the cycle was cut off."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cut_off(self, why: str) -> None:
        self.reasons.append(why)


class Losing:
    """Makes cycles of which the first loses its Lease when it is about to evict its first pod."""

    def __init__(self, cluster: FakeCluster, between: Callable[[], object] = lambda: None) -> None:
        self.cluster = cluster
        self.between = between
        """Called before the second cycle begins."""
        self.leases: list[LeaseHolder] = []
        cluster.before = self._lose

    def _lose(self, verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("evict", PODS.plural) and len(self.leases) == 1:
            self.leases[0].lost.set()

    def __call__(self, context: CycleContext) -> Cycle:
        if self.leases:
            self.between()
        self.leases.append(run_lease(self.cluster.as_client(), context.clock, SETTINGS))
        return Cycle(context, SETTINGS, PLANNER, self.leases[-1])


def context_of(cluster: FakeCluster) -> CycleContext:
    return CycleContext(cluster.as_client(), BriskClock(), Notes(), threading.Event())


def require_nothing_left(cluster: FakeCluster) -> None:
    assert cluster.taints() == {}
    assert (cluster.pods_on("low-1"), cluster.pods_on("low-2")) == ([], [])


def test_a_run_that_loses_its_lease_takes_it_again_and_goes_on() -> None:
    cluster = fragmented_cluster()
    context = context_of(cluster)
    outcome = run_persistently(Losing(cluster), context)

    assert states(outcome) == LANDED
    assert phases(cluster) == ["Succeeded"]
    require_nothing_left(cluster)
    assert isinstance(context.observer, Notes)
    assert ["the lease was lost" in why for why in context.observer.reasons] == [True]


def test_where_another_run_has_ended_the_plan_its_status_says_how_it_went() -> None:
    cluster = fragmented_cluster()
    other = replace(SETTINGS, identity="other")
    outcome = run_persistently(Losing(cluster, Cycle(context_of(cluster), other, PLANNER).run), context_of(cluster))

    assert outcome.verdict is Verdict.CARRIED_OUT
    assert states(outcome) == LANDED
    assert outcome.clean
    assert phases(cluster) == ["Succeeded"]
    require_nothing_left(cluster)


def test_a_lease_that_another_run_keeps_is_given_up_when_the_time_is_over() -> None:
    cluster = fragmented_cluster()

    def take() -> None:
        holder = {"holderIdentity": "other", "leaseDurationSeconds": 3600}
        cluster.merge_patch(LEASES, "berth-descheduler", {"spec": holder}, namespace="berth-system")

    with pytest.raises(LeaseLostError):
        run_persistently(Losing(cluster, take), context_of(cluster), 0.001)
    assert phases(cluster) == ["Running"], "the other run goes on with it"


def test_a_plan_that_was_deleted_meanwhile_is_over() -> None:
    cluster = fragmented_cluster()
    losing = Losing(cluster)
    make = losing.__call__

    def delete_then_make(context: CycleContext) -> Cycle:
        if losing.leases:
            cluster.remove(MIGRATION_PLANS, cluster.plan())
        return make(context)

    outcome = run_persistently(delete_then_make, context_of(cluster))
    assert outcome.verdict is Verdict.PLAN_DELETED


@pytest.mark.parametrize(
    "error",
    [
        ServerError(call("list", PODS, ""), failure(503)),
        UntrustedServerError(call("list", PODS, ""), failure(0), url="https://x", acted=False),
    ],
    ids=["before anything is published", "by another server"],
)
def test_a_run_that_cannot_go_on_says_so_at_once(error: Exception) -> None:
    cluster = fragmented_cluster()
    cluster.faults["list pods"] = [error]
    with pytest.raises(type(error)):
        run_persistently(lambda context: Cycle(context, SETTINGS, PLANNER), context_of(cluster))


def test_the_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fragmented_cluster()
    cut_off_first_cycle(commands, cluster, monkeypatch)

    assert berth(["run", "--yes", "--moves=Evict", "--pending-wait=0s"]) == 0
    assert set(phases(cluster)) == {"Succeeded"}
