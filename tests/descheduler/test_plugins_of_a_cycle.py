"""Plugins in a whole cycle, on an API server in memory: the last word before an eviction, and single pods."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from berth_core import Pod
from berth_core.clock import SystemClock, format_timestamp
from berth_core.errors import RetryableError
from berth_core.migration_plans import PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.framework.enabled_plugins import Enabled, PluginError
from berth_descheduler.framework.interfaces import Candidate, ClusterView, PodFilter
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.migration.moves.eviction_request import evict
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from berth_descheduler.plugins.defragmentation import NoBalance
from berth_descheduler.settings import CycleSettings
from berth_kube.errors import ServerError
from berth_kube.resources import PODS, REPLICA_SETS, VOLCANO_POD_GROUPS
from builders import FakeClock
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock, impatient, states
from descheduler.fake_cluster import FakeCluster, Raw, call, evicted, failure, fragmented_cluster, pod, replica_set
from planner_settings import plugin_set, with_plugins, with_settings


@dataclass(frozen=True)
class Guard:
    """A filter that says something only right before an eviction."""

    say: Callable[[Pod, ClusterView], Sequence[str]]

    def filter(self, _view: ClusterView) -> PodFilter:
        return lambda _pod: ()

    def pre_eviction_filter(self, view: ClusterView) -> PodFilter:
        return lambda asked: self.say(asked, view)


@dataclass(frozen=True)
class Naming:
    """Names pods of the namespace of the tests."""

    names: Sequence[str]

    def deschedule(self, _view: ClusterView) -> Iterable[Candidate]:
        return [Candidate("shop", name, "it is asked for") for name in self.names]


def guarded(say: Callable[[Pod, ClusterView], Sequence[str]]) -> PlannerSettings:
    return with_plugins(PLANNER, pre_eviction_filters=(Enabled("Guard", Guard(say)),))


def naming(*names: str) -> PlannerSettings:
    balance = Enabled("", NoBalance(("Naming",)))
    return with_plugins(PLANNER, deschedule=(Enabled("Naming", Naming(names)),), balance=balance)


def run(cluster: FakeCluster, planner: PlannerSettings, settings: CycleSettings = SETTINGS) -> Outcome:
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings, planner).run()


def held(cluster: FakeCluster) -> list[Raw]:
    return [one for one in cluster.reservations() if one["status"]["state"]["phase"] == "Available"]


def test_a_filter_has_the_last_word_and_what_is_held_by_then_is_released() -> None:
    cluster = fragmented_cluster()
    outcome = run(cluster, guarded(lambda asked, _: ["it is Friday", "late"] if asked.metadata.name == "api-1" else ()))

    assert states(outcome)["api-1"] == ("Skipped", "Filtered")
    assert states(outcome)["web-2"] == ("Landed", "")
    (filtered,) = [one for one in outcome.plan.statuses if one.reason == "Filtered"]  # type: ignore[union-attr]
    assert filtered.message == "Guard: it is Friday; Guard: late"
    assert "api-1" not in evicted(cluster)
    assert held(cluster) == []
    assert cluster.taints() == {}


def test_the_pod_is_asked_about_as_it_is_then() -> None:
    cluster = fragmented_cluster()
    evictor = DefaultEvictor.parse({"noEvictionPolicy": "Mandatory"})
    enabled = (Enabled("DefaultEvictor", evictor),)
    planner = with_plugins(PLANNER, filters=enabled, pre_eviction_filters=enabled)

    def annotate(verb: str, plural: str, _name: str) -> None:
        """The pod gets the annotation while places are being reserved."""
        if (verb, plural) == ("create", "reservations"):
            with cluster.lock:
                found = cluster.objects["pods"]["shop", "web-2"]["metadata"]
                found["annotations"] = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}

    cluster.before = annotate
    outcome = run(cluster, planner, impatient("gap_seconds"))

    assert states(outcome)["web-2"] == ("Skipped", "Filtered")
    assert evicted(cluster) == ["api-1", "web-1"]


def in_gang(cluster: FakeCluster, min_member: int) -> None:
    """Put the pods of `web` into a PodGroup of Volcano."""
    with cluster.lock:
        for name in ("web-1", "web-2"):
            cluster.objects["pods"]["shop", name]["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "web"}
    cluster.add(
        VOLCANO_POD_GROUPS, {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"minMember": min_member}}
    )


def test_a_gang_that_needs_its_pods_by_then_keeps_them() -> None:
    cluster = fragmented_cluster()
    in_gang(cluster, 1)

    def need_more(verb: str, plural: str, _name: str) -> None:
        """The gang's minimum is raised while places are being reserved."""
        if (verb, plural) == ("create", "reservations"):
            with cluster.lock:
                cluster.objects["volcanopodgroups"]["shop", "web"]["spec"]["minMember"] = 2

    cluster.before = need_more
    outcome = run(cluster, PLANNER, impatient("gap_seconds"))

    assert {states(outcome)[name][1] for name in ("web-1", "web-2")} <= {"Filtered", "SourceNotEmptiable", "PodChanged"}
    (filtered, *_) = [one for one in outcome.plan.statuses if one.reason == "Filtered"]  # type: ignore[union-attr]
    assert filtered.message == "its Volcano PodGroup web needs 2 running pods and has 2"
    assert not {"web-1", "web-2"} & set(evicted(cluster))


def test_what_an_autoscaler_has_to_leave_by_then_stays() -> None:
    cluster = fragmented_cluster()

    def annotate(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", "reservations"):
            with cluster.lock:
                notes = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
                cluster.objects["pods"]["shop", "web-2"]["metadata"]["annotations"] = notes

    cluster.before = annotate
    outcome = run(cluster, PLANNER, impatient("gap_seconds"))

    assert states(outcome)["web-2"] == ("Skipped", "Filtered")
    assert "web-2" not in evicted(cluster)


@dataclass(frozen=True)
class Pulse:
    """An operator that is there."""

    def problem(self) -> str:
        return ""


def test_of_a_gang_that_can_spare_one_pod_no_two_are_evicted_at_once() -> None:
    cluster = fragmented_cluster()
    in_gang(cluster, 2)
    third = pod("web-3", "web", "low-2", cpu="1")
    third["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "web"}
    cluster.add(PODS, third)
    cluster.add(REPLICA_SETS, replica_set("web", 3))

    def leave(raw: Raw) -> None:
        with cluster.lock:
            raw["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"

    together = threading.Barrier(2)

    def meet(verb: str, plural: str, _name: str) -> None:
        """Let both look before either acts, if they may."""
        if (verb, plural) == ("list", "volcanopodgroups"):
            with suppress(threading.BrokenBarrierError):
                together.wait(timeout=1)

    cluster.land, cluster.before = leave, meet
    client: Any = cluster
    word = PreEvictionCheck(
        plugin_set(),
        Snapshot.empty,
        client,
        SystemClock(),
    )
    pulse: Any = Pulse()
    moves = [
        PlannedMove(namespace="shop", pod=name, pod_uid=f"uid-{name}", source=source, target="high-1")
        for name, source in (("web-1", "low-1"), ("web-2", "low-2"))
    ]
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda move: evict(client, move, pulse, word, lambda _pod, _reads: None), moves))

    assert sorted(one.eviction.name for one in answers) == ["NOT_SENT", "SENT"]
    assert len(evicted(cluster)) == 1


def test_a_cluster_that_cannot_be_read_for_a_moment_is_read_again() -> None:
    cluster = fragmented_cluster()
    failures = [ServerError(call("get", PODS, "api-1"), failure(503, "busy"))]

    def say(asked: Pod, _view: ClusterView) -> Sequence[str]:
        if asked.metadata.name == "api-1" and failures:
            raise failures.pop()
        return ()

    outcome = run(cluster, guarded(say))

    assert set(states(outcome).values()) == {("Landed", "")}


def test_a_filter_that_fails_keeps_the_pod() -> None:
    def say(_asked: Pod, _view: ClusterView) -> Sequence[str]:
        raise KeyError("team")

    cluster = fragmented_cluster()
    outcome = run(cluster, guarded(say))

    assert evicted(cluster) == []
    assert outcome.plan is not None
    messages = {one.message for one in outcome.plan.statuses if one.reason == "Filtered"}
    assert messages == {"the plugin Guard failed: KeyError: 'team'"}


@pytest.mark.parametrize("planner", [PLANNER, with_plugins(PLANNER, pre_eviction_filters=())])
def test_a_pod_is_read_once_for_its_place_and_once_for_the_last_word(planner: PlannerSettings) -> None:
    cluster = fragmented_cluster()
    run(cluster, planner)

    reads = [call.name for call in cluster.calls if (call.verb, call.plural) == ("get", "pods")]
    assert sorted(reads) == ["api-1", "api-1", "web-1", "web-1", "web-2", "web-2"]


def test_a_pod_that_is_named_moves_with_its_place_held_first() -> None:
    cluster = fragmented_cluster()
    outcome = run(cluster, naming("api-1"))

    assert outcome.clean
    assert states(outcome) == {"api-1": ("Landed", "")}
    assert outcome.sentence.startswith("1 of 1 pod landed on its target in ")
    (move,) = cluster.plan()["spec"]["moves"]
    assert move["reason"] == "Naming: it is asked for"
    assert cluster.plan()["spec"]["objective"]["strategy"] == "SinglePods"
    assert evicted(cluster) == ["api-1"]
    verbs = [
        call.verb
        for call in cluster.calls
        if (call.verb, call.plural) in {("create", "reservations"), ("evict", "pods")}
    ]
    assert verbs == ["create", "evict"]
    assert cluster.pods_on("low-1") == ["web-1"]


def test_a_pod_that_is_named_and_stays_does_not_keep_another_of_its_node() -> None:
    cluster = fragmented_cluster()
    cluster.hold = lambda r: None if of_web(r) else cluster.hold_at_once(r)
    one_by_one = with_settings(naming("web-1", "api-1"), waves=WaveLimits(per_wave=1))
    outcome = run(cluster, one_by_one, impatient("reserve_seconds"))

    assert [move["pod"] for move in cluster.plan()["spec"]["moves"]] == ["web-1", "api-1"]
    assert states(outcome) == {"web-1": ("Failed", "ReservationTimeout"), "api-1": ("Landed", "")}


def test_a_pod_that_is_named_does_not_wait_for_the_places_of_others_of_its_node() -> None:
    cluster = fragmented_cluster()
    late: list[Raw] = []
    cluster.hold = lambda r: late.append(r) if of_web(r) else cluster.hold_at_once(r)

    def hold_the_other(verb: str, _plural: str, name: str) -> None:
        if (verb, name) == ("evict", "api-1"):
            cluster.hold_at_once(late.pop())

    cluster.before = hold_the_other
    outcome = run(cluster, naming("web-1", "api-1"))

    assert states(outcome) == {"web-1": ("Landed", ""), "api-1": ("Landed", "")}


@dataclass(frozen=True)
class Looking:
    """Names no pod, and keeps what other policies moved."""

    seen: list[str]

    def deschedule(self, view: ClusterView) -> Iterable[Candidate]:
        self.seen.extend(move.source for move in view.of_others)
        return ()


@pytest.mark.parametrize(("policy", "want"), [("nightly", []), ("daily", ["low-2"])])
def test_a_plugin_sees_what_other_policies_moved(policy: str, want: list[str]) -> None:
    cluster = fragmented_cluster()
    assert run(cluster, naming("web-2"), replace(SETTINGS, policy="nightly")).clean
    seen: list[str] = []
    balance = Enabled("", NoBalance(("Looking",)))
    looking = with_plugins(PLANNER, deschedule=(Enabled("Looking", Looking(seen)),), balance=balance)
    run(cluster, looking, replace(SETTINGS, policy=policy))
    assert seen == want


def of_web(reservation: Raw) -> bool:
    return bool(reservation["spec"]["owners"][0]["object"]["name"] == "web")


def test_a_plan_for_single_pods_need_not_free_nodes() -> None:
    cluster = fragmented_cluster()
    outcome = run(cluster, naming("web-2"), replace(SETTINGS, min_freed_nodes=2))

    assert outcome.verdict is Verdict.CARRIED_OUT
    assert cluster.pods_on("low-2") == []


def test_a_plugin_that_fails_ends_the_run_before_anything_is_touched() -> None:
    cluster = fragmented_cluster()
    broken = with_plugins(PLANNER, deschedule=(Enabled("Bad", Unready()),))

    with pytest.raises(PluginError, match="the plugin Bad failed: OSError: no file"):
        run(cluster, broken)

    assert evicted(cluster) == []
    assert cluster.taints() == {}
    assert not cluster.objects["migrationplans"]


class Unready:
    """A plugin that fails to name pods."""

    def deschedule(self, _view: ClusterView) -> Iterable[Candidate]:
        raise OSError("no file")


def test_nobody_named_is_nothing_to_move() -> None:
    assert run(fragmented_cluster(), naming()).verdict is Verdict.NOTHING_TO_MOVE


# --- the last word by itself ------------------------------------------------------------------------------------------


def test_a_view_is_read_once_for_a_while_and_only_if_it_is_looked_at() -> None:
    reads: list[float] = []
    clock = FakeClock()

    def read() -> Snapshot:
        reads.append(clock.monotonic())
        return Snapshot()

    looking = plugin_set(
        pre_eviction_filters=(Enabled("Guard", Guard(lambda _, view: [str(len(view.snapshot.pods))])),)
    )
    word = PreEvictionCheck(looking, read, api(), clock)
    for seconds in (0, 10, 19, 2, 10):
        clock.sleep(seconds)
        assert [refusal.message for refusal in refusals(word)] == ["Guard: 0"]
    assert len(reads) == 2

    assert refusals(PreEvictionCheck(plugin_set(), read, api(), clock)) == ()
    assert len(reads) == 2


def test_protection_for_a_while_is_over_when_the_clock_says_so() -> None:
    raw, clock = raw_pod(), FakeClock()
    raw["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "15m"}
    raw["status"]["startTime"] = format_timestamp(clock.now())
    word = PreEvictionCheck(plugin_set(), Snapshot.empty, api(), clock)

    clock.sleep(899)
    assert [refusal.reason for refusal in refusals(word, raw)] == [RefusalReason.DO_NOT_DISRUPT]

    clock.sleep(1)
    assert refusals(word, raw) == ()


def test_a_pod_that_cannot_be_read_stays() -> None:
    odd = {**raw_pod(), "status": "Running"}
    (refusal,) = refusals(PreEvictionCheck(plugin_set(), Snapshot.empty, api(), FakeClock()), odd)
    assert refusal.reason is RefusalReason.PLUGIN_FAILED


def test_an_argument_that_does_not_fit_the_cluster_any_more_keeps_the_pod() -> None:
    evictor = DefaultEvictor.parse({"priorityThreshold": {"name": "gone"}})
    plugins = plugin_set(pre_eviction_filters=(Enabled("DefaultEvictor", evictor),))
    (refusal,) = refusals(PreEvictionCheck(plugins, Snapshot.empty, api(), FakeClock()))
    assert "the PriorityClass gone of priorityThreshold does not exist" in refusal.message


def test_a_cluster_that_cannot_be_read_is_no_answer() -> None:
    def unreadable() -> Snapshot:
        raise RetryableError("not now")

    looking = plugin_set(pre_eviction_filters=(Enabled("Guard", Guard(lambda _, view: [str(view.snapshot)])),))
    with pytest.raises(RetryableError):
        refusals(PreEvictionCheck(looking, unreadable, api(), FakeClock()))


def api() -> Any:  # noqa: ANN401 - stands in for the client
    return fragmented_cluster()


def refusals(check: PreEvictionCheck, raw: Raw | None = None) -> tuple[Refusal, ...]:
    return check.refusals(raw or raw_pod(), check.reads())


def raw_pod() -> Raw:
    return pod("web-1", "web", "low-1", cpu="1")
