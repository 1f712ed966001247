"""A cycle that moves pods by surge: no pod is evicted before another serves, and no run leaves one let go."""

# ruff: noqa: ANN401 - it passes on whatever the client is called with

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from berth_core import Pod
from berth_core.clock import format_timestamp
from berth_core.labels import RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_core.migration_plans import MoveMethod
from berth_core.policies import DeschedulerPolicySpec
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.moves import observation
from berth_descheduler.migration.moves.surge_eligibility import find_unsurgeable
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome
from berth_descheduler.settings import CycleSettings
from berth_kube import SurgeEligibility, why_not_surge
from berth_kube.errors import UnreachableError
from berth_kube.resources import (
    DEPLOYMENTS,
    LEASES,
    MIGRATION_PLANS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    RESOURCE_QUOTAS,
    SERVICES,
    Resource,
)
from builders import NOON, FakeClock
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock, impatient, states
from descheduler.fake_cluster import FakeCluster, Raw, blocked, call, evicted, failure, fragmented_cluster
from descheduler.test_cycle_killed_anywhere import MortalProcess, is_killed

SURGE = replace(SETTINGS, moves=MoveMethod.SURGE)
HASH = "5d4f8c7b9"


class Surging:
    """A fragmented cluster of Deployments whose ReplicaSets let pods go and take them back, as Kubernetes' do."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self.cluster = fragmented_cluster(cluster)
        self.cluster.land = self._end
        self.makes = True
        """Whether a ReplicaSet makes a pod for one that it has let go."""
        self.is_ready = True
        self.starts: Callable[[Raw], object] = lambda _: None
        """Called with each pod that a ReplicaSet has made in the place of another."""
        self._patch = self.cluster.merge_patch
        self.cluster.merge_patch = self.merge_patch  # type: ignore[method-assign]
        self.fewest: dict[str, int] = {}
        for one in self.cluster.raw(REPLICA_SETS):
            self._deploy(one["metadata"]["name"])
        for one in self.cluster.raw(PODS):
            one["metadata"]["labels"][TEMPLATE_HASH_LABEL] = HASH

    def _deploy(self, name: str) -> None:
        found = self.cluster.objects["replicasets"][("shop", name)]
        count = found["spec"]["replicas"]
        found["spec"]["selector"] = {"matchLabels": {"app": name, TEMPLATE_HASH_LABEL: HASH}}
        head = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"uid-d-{name}"}
        found["metadata"]["ownerReferences"] = [{**head, "controller": True}]
        metadata = {"name": name, "namespace": "shop", "uid": head["uid"], "generation": 1}
        body = {"metadata": metadata, "spec": {"replicas": count}}
        status = {"observedGeneration": 1, "updatedReplicas": count}
        self.cluster.add(DEPLOYMENTS, {**body, "status": status})

    def merge_patch(self, resource: Resource, name: str, body: Mapping[str, Any], **options: Any) -> Any:
        done = self._patch(resource, name, body, **options)
        with self.cluster.lock:
            if resource is PODS:
                self._reconcile(self.cluster.objects["pods"][(options["namespace"], name)])
        return done

    def _reconcile(self, pod: Raw) -> None:
        """Do what the ReplicaSet of a pod does."""
        metadata = pod["metadata"]
        app, is_out = metadata["labels"]["app"], metadata["labels"][TEMPLATE_HASH_LABEL] == RELEASED_HASH
        is_owned = any(one.get("controller") for one in metadata["ownerReferences"])
        if is_out and is_owned:
            kept = [one for one in metadata["ownerReferences"] if not one.get("controller")]
            pod = self.cluster._store("pods", {**pod, "metadata": {**metadata, "ownerReferences": kept}})
            if self.makes:
                self._make(app, pod)
        if not is_out and not is_owned:
            owners = [owner_of(app)]
            self.cluster._store("pods", {**pod, "metadata": {**metadata, "ownerReferences": owners}})
            self._delete_surplus(app)

    def _make(self, app: str, like: Raw) -> None:
        head = {
            **like["metadata"],
            "labels": {"app": app, TEMPLATE_HASH_LABEL: HASH},
            "ownerReferences": [owner_of(app)],
        }
        head.pop("annotations", None)
        as_before = {**like, "metadata": head}
        place = self.cluster.held_place(as_before)
        node = place["status"]["slots"][0]["node"] if place else ""
        new = self.cluster.new_pod(as_before, node=node, ready=self.is_ready)
        if place:
            self.cluster.take(place, new)
        self.starts(new)

    def set_status(self, pod: Raw, **status: Any) -> None:
        """Write a pod's status as its kubelet would, unless the pod is gone by now."""
        with self.cluster.lock:
            here = self.cluster.objects["pods"].get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
            if here is not None:
                self.cluster._store("pods", {**here, "status": {**here["status"], **status}})

    def _delete_surplus(self, app: str) -> None:
        wanted = self.cluster.objects["replicasets"][("shop", app)]["spec"]["replicas"]
        own = [one for one in self.owned(app) if not one["metadata"].get("deletionTimestamp")]
        by_age = sorted(own, key=lambda one: (is_ready(one), one["metadata"]["creationTimestamp"] == NOON_TEXT))
        for one in by_age[: max(0, len(own) - wanted)]:
            self.cluster.remove(PODS, one)

    def _end(self, pod: Raw) -> None:
        """End an evicted pod; only one that a ReplicaSet has is made again."""
        with self.cluster.lock:
            if any(one.get("controller") for one in pod["metadata"]["ownerReferences"]):
                self.cluster.land_at_once(pod)
                return
            app = pod["metadata"]["labels"]["app"]
            wanted = self.cluster.objects["replicasets"][("shop", app)]["spec"]["replicas"]
            assert sum(map(is_ready, self.owned(app))) >= wanted, f"{app} has too few pods"
            self.cluster.remove(PODS, pod)

    def owned(self, app: str) -> list[Raw]:
        owned = [one for one in self.cluster.raw(PODS) if one["metadata"]["labels"]["app"] == app]
        return [one for one in owned if any(owner.get("controller") for owner in one["metadata"]["ownerReferences"])]

    def released(self) -> list[str]:
        found = self.cluster.raw(PODS)
        return [one["metadata"]["name"] for one in found if one["metadata"]["labels"][TEMPLATE_HASH_LABEL] != HASH]

    def moves(self) -> list[Raw]:
        found: list[Raw] = self.cluster.plan()["status"]["moves"]
        return found


def owner_of(app: str) -> Raw:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"uid-{app}", "controller": True}


NOON_TEXT = format_timestamp(NOON)


def is_ready(pod: Raw) -> bool:
    return bool(pod["status"]["conditions"][0]["status"] == "True")


def run(world: Surging, settings: CycleSettings = SURGE, client: Any = None, clock: Any = None) -> Outcome:
    context = CycleContext(client or world.cluster, clock or BriskClock(), CycleObserver(), threading.Event())
    return Cycle(context, settings, PLANNER).run()


LANDED = {"web-1": ("Landed", ""), "web-2": ("Landed", ""), "api-1": ("Landed", "")}


def test_each_pod_is_evicted_once_another_serves_in_its_stead() -> None:
    world = Surging()
    outcome = run(world)

    assert states(outcome) == LANDED
    assert [move["method"] for move in world.moves()] == ["Surge"] * 3
    assert evicted(world.cluster) == ["api-1", "web-1", "web-2"]
    assert world.released() == []
    assert world.cluster.pods_on("low-1") == world.cluster.pods_on("low-2") == []


def test_moves_are_surges_unless_evictions_are_asked_for() -> None:
    assert CycleSettings().moves is DeschedulerPolicySpec(profiles=()).moves is MoveMethod.SURGE
    world = Surging()
    outcome = run(world, SETTINGS)

    assert states(outcome) == LANDED
    assert not any("method" in move for move in world.moves())
    assert not any(call.verb == "patch" and call.plural == "pods" for call in world.cluster.calls)


def test_what_cannot_surge_is_evicted_first_and_says_why() -> None:
    world = Surging()
    spec = {"selector": {"app": "web", TEMPLATE_HASH_LABEL: HASH}}
    world.cluster.add(SERVICES, {"metadata": {"name": "blue", "namespace": "shop"}, "spec": spec})
    outcome = run(world)

    assert states(outcome) == LANDED
    told = {move["pod"]: (move["method"], move.get("methodReason", "")) for move in world.moves()}
    by_hash = ("Evict", "the Service blue selects pods by pod-template-hash")
    assert told == {"web-1": by_hash, "web-2": by_hash, "api-1": ("Surge", "")}


def refuse_evictions(world: Surging) -> None:
    world.cluster.faults["evict pods"] = [blocked("x") for _ in range(1000)]


def test_of_a_namespace_all_is_read_once_for_moves_that_are_made_together() -> None:
    world, clock = Surging(), FakeClock()
    eligibility = SurgeEligibility(world.cluster, clock)  # type: ignore[arg-type]
    pods = [one for one in world.cluster.raw(PODS) if one["metadata"]["name"] in LANDED]

    def lists() -> list[str]:
        listed = [call.plural for call in world.cluster.calls if call.verb == "list"]
        world.cluster.calls.clear()
        return listed

    for one in pods:
        assert why_not_surge(one, eligibility.look(one)) == ""
    found = lists()
    assert len(found) == len(set(found)) > 1
    clock.advance(3)
    eligibility.look(pods[0])
    assert lists() == found


def test_a_quota_has_room_for_as_many_as_are_let_go_at_once() -> None:
    world, clock = Surging(), FakeClock()
    status = {"hard": {"pods": "6"}, "used": {"pods": "5"}}
    world.cluster.add(RESOURCE_QUOTAS, {"metadata": {"name": "six", "namespace": "shop"}, "status": status})
    eligibility = SurgeEligibility(world.cluster, clock)  # type: ignore[arg-type]
    one = next(one for one in world.cluster.raw(PODS) if one["metadata"]["name"] == "web-1")

    assert why_not_surge(one, eligibility.look(one)) == ""
    eligibility.note_release("shop")
    assert "no room for one pod more" in why_not_surge(one, eligibility.look(one))
    clock.advance(5)  # by then the quota counts the pod that was made, or it never will
    assert why_not_surge(one, eligibility.look(one)) == ""


@pytest.mark.parametrize("hard", [5, 6])
def test_a_pod_surges_where_its_quota_has_room_for_one_more(hard: int) -> None:
    """Its place takes no room of the API server's: placeholders are in Berth's own namespace."""
    world = Surging()
    status = {"hard": {"pods": str(hard)}, "used": {"pods": "5"}}
    world.cluster.add(RESOURCE_QUOTAS, {"metadata": {"name": "few", "namespace": "shop"}, "status": status})
    pod = msgspec.convert(next(one for one in world.cluster.raw(PODS) if one["metadata"]["name"] == "web-1"), Pod)

    found = find_unsurgeable(world.cluster, [pod])  # type: ignore[arg-type]
    assert found == ({pod.key: "the ResourceQuota few has no room for one pod more"} if hard == 5 else {})


SOON: Mapping[str, Callable[[Surging], object]] = {
    "no pod is made in its stead": lambda world: setattr(world, "makes", False),
    "the replacement is not Ready": lambda world: setattr(world, "is_ready", False),
    "the eviction is refused": refuse_evictions,
}


@pytest.mark.parametrize("trouble", SOON)
def test_what_goes_wrong_is_taken_back_and_nothing_has_happened(trouble: str) -> None:
    world = Surging()
    SOON[trouble](world)
    outcome = run(world, impatient("gap_seconds", "ready_seconds", "evict_seconds", settings=SURGE))

    assert {state for state, _ in states(outcome).values()} <= {"Failed", "Skipped"}
    assert {"TakenBack", "EvictionBlocked"} & {reason for _, reason in states(outcome).values()}
    assert world.released() == []
    assert {one["metadata"]["name"] for one in world.cluster.raw(PODS)} >= {"big-1", "big-2"}
    assert [len(world.owned(app)) for app in ("web", "api", "big")] == [2, 1, 2]
    if trouble != "the eviction is refused":
        assert evicted(world.cluster) == []
        assert world.cluster.pods_on("low-1") == ["api-1", "web-1"]


READY = [{"type": "Ready", "status": "True"}]


def test_a_replacement_that_starts_slowly_is_waited_for() -> None:
    """Its place is recorded as taken long before it is Ready, and nothing on the pod says so any more."""
    world = Surging()
    world.is_ready = False
    world.starts = lambda pod: threading.Timer(1.0, world.set_status, [pod], {"conditions": READY}).start()
    outcome = run(world, impatient("gap_seconds", settings=SURGE, seconds=0.2))

    assert states(outcome) == LANDED
    assert world.released() == []


CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
LAST = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no database"}}
STATUSES: Mapping[str, tuple[dict[str, Any], str]] = {
    "CrashLoopBackOff": (
        {"containerStatuses": [{"name": "app", "restartCount": 4, "state": CRASHED, "lastState": LAST}]},
        "exit code 1 (Error: no database)",
    ),
    "RefusedByKubelet": (
        {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: not enough cpu"},
        "OutOfcpu: Pod was rejected: not enough cpu",
    ),
}


@pytest.mark.parametrize("reason", STATUSES)
def test_a_replacement_that_cannot_become_ready_is_given_up_early_by_its_own_words(reason: str) -> None:
    world = Surging()
    status, want_words = STATUSES[reason]
    world.is_ready = False
    world.starts = lambda pod: world.set_status(pod, **status)
    settings = replace(SURGE, execution=replace(SURGE.execution, max_failed_share=1.0))
    outcome = run(world, settings)

    failed = [move for move in world.moves() if move["state"] == "Failed"]
    assert {move.get("reason") for move in failed} == {reason}
    assert all(want_words in move["message"] for move in failed)
    assert failed, outcome
    assert evicted(world.cluster) == world.released() == []
    assert [sum(map(is_ready, world.owned(app))) for app in ("web", "api", "big")] == [2, 1, 2]


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_replacement_on_a_node_that_went_not_ready_is_given_up(ready: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "NODE_SECONDS", 0.0)
    world = Surging()
    world.is_ready = False
    condition = {"type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "message": "kubelet stopped posting"}

    def lose_node(pod: Raw) -> None:
        node = world.cluster.objects["nodes"][("", pod["spec"]["nodeName"])]
        world.cluster._store("nodes", {**node, "status": {**node["status"], "conditions": [condition]}})

    world.starts = lose_node
    run(world, impatient("gap_seconds", settings=SURGE, seconds=0.1))

    reasons = {move.get("reason"): move.get("message", "") for move in world.moves()}
    assert "is not Ready: NodeStatusUnknown: kubelet stopped posting" in reasons["NodeNotReady"]
    assert evicted(world.cluster) == world.released() == []


def hold_without_proof(world: Surging) -> None:
    """Have places held by an operator that says nothing of hand-overs."""

    def hold(reservation: Raw) -> None:
        slot = {"task": "pod", "index": 0, "state": "Held", "node": "high-1"}
        status = {"state": {"phase": "Available"}, "conditions": [{"type": "Available", "status": "True"}]}
        world.cluster._store("reservations", {**reservation, "status": {**status, "slots": [slot]}})

    world.cluster.hold = hold


def forget_the_proof(world: Surging) -> None:
    """Have an operator whose Lease does not say that pods come back gated."""
    for lease in world.cluster.raw(LEASES):
        lease["metadata"]["annotations"] = {}


OLDER: Mapping[str, tuple[Callable[[Surging], None], str, str]] = {
    "no hand-over is proven": (hold_without_proof, "HandoverNotReady", "too old?"),
    "its Lease says nothing of gates": (forget_the_proof, "EvictionBlocked", "or is it too old?"),
}


@pytest.mark.parametrize("lack", OLDER)
def test_below_an_operator_that_is_too_old_no_pod_is_let_go_and_the_move_says_so(lack: str) -> None:
    world = Surging()
    make_older, want_reason, want_text = OLDER[lack]
    make_older(world)
    outcome = run(world, impatient("reserve_seconds", "evict_seconds", settings=SURGE))

    said = {move.get("reason"): move.get("message", "") for move in world.moves()}
    assert want_text in said[want_reason]
    assert {state for state, _ in states(outcome).values()} <= {"Failed", "Skipped"}
    assert not any(call.verb == "patch" and call.plural == "pods" for call in world.cluster.calls)
    assert evicted(world.cluster) == []


@pytest.mark.parametrize("late", ["pods", "reservations", "nothing"])
@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_release_without_an_answer_is_known_by_what_is_seen_or_taken_back(*, is_aborted: bool, late: str) -> None:
    """The API server carries each patch of a pod out once without an answer; the plan goes on or is aborted then.

    The watches of pods and Reservations bring what happens in any order.
    """
    world = Surging()
    world.cluster.watch_delays[late] = 0.3
    unanswered: set[str] = set()
    patched = world.merge_patch

    def merge_patch(resource: Resource, name: str, body: Mapping[str, Any], **options: Any) -> Any:
        done = patched(resource, name, body, **options)
        if resource is PODS and name not in unanswered:
            unanswered.add(name)
            if is_aborted:
                interrupt(world, "aborted")
            raise UnreachableError(call("patch", PODS, name), failure(0, "reset"), url="https://fake", acted=True)
        return done

    world.cluster.merge_patch = merge_patch  # type: ignore[method-assign]
    outcome = run(world)

    assert unanswered
    assert world.released() == []
    assert [len(world.owned(app)) for app in ("web", "api", "big")] == [2, 1, 2]
    if is_aborted:
        assert {reason for _, reason in states(outcome).values()} <= {"Aborted", ""}
        assert "Skipped" in {state for state, _ in states(outcome).values()}
    else:
        assert states(outcome) == LANDED


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("ending", "step"),
    [
        *(("continued", 11), ("aborted", 13), ("deleted", 17)),
        *(pytest.param(ending, 1, marks=pytest.mark.deep) for ending in ("continued", "aborted", "deleted")),
    ],
)
def test_the_next_run_ends_what_a_killed_one_let_go(ending: str, step: int) -> None:
    """Killed before every so many of its calls; the plan goes on, or was aborted, or deleted meanwhile."""
    met_released = False
    calls_to_live = 0
    for calls_to_live in itertools.count(step=step):
        world = Surging()
        process = MortalProcess(world.cluster, calls_to_live)
        if not is_killed(process, partial(run, world, SURGE, process, process)):
            break
        met_released = met_released or bool(world.released())
        interrupt(world, ending)

        run(world)

        when = f"killed before call {calls_to_live}"
        assert world.released() == [], when
        assert [len(world.owned(app)) for app in ("web", "api", "big")] == [2, 1, 2], when
        assert {one["status"]["state"]["phase"] for one in world.cluster.reservations()} <= {"Succeeded"}, when
    assert calls_to_live > 40
    assert met_released


def interrupt(world: Surging, ending: str) -> None:
    for (_, name), found in list(world.cluster.objects["migrationplans"].items()):
        if found.get("status", {}).get("phase") in {"Succeeded", "Partial", "Failed", "Aborted"}:
            continue
        if ending == "aborted":
            world.cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"aborted": True}})
        elif ending == "deleted":
            world.cluster.delete(MIGRATION_PLANS, name)
            for one in world.cluster.reservations():
                world.cluster.remove(RESERVATIONS, one)
