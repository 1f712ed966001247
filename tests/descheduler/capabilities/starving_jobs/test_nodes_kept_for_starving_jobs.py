"""What is kept for starving jobs is released when it is of no use, and pods hear of the fences."""

from typing import Any

import msgspec
import pytest

from berth_core import POLICY_LABEL, RESERVATION_LABEL, STANDING_FENCE_LABEL, STARVING_JOB_LABEL
from berth_core.migration_plans import (
    STARVING_JOBS,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    Objective,
    PlanPhase,
)
from berth_core.policies import DeschedulerPolicy, DeschedulerPolicySpec
from berth_descheduler.capabilities.starving_jobs.kept_nodes import KeptNodesSweep
from berth_descheduler.capability import Leading
from berth_descheduler.controller.decisions import ParsedPolicy
from berth_descheduler.picture import Picture
from berth_descheduler.plugins import PluginRegistry
from berth_descheduler.plugins.registry import OWN_PLUGINS
from berth_descheduler.policy import PolicyError, PolicyRun, RunDefaults, read_policy
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, ServerError
from berth_kube.resources import NODES, PODS, RESERVATIONS
from builders import FakeClock, meta
from descheduler.fake_cluster import FakeCluster, Raw, call, failure, node, pod

UNPLACED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
POLICY = "starving"


def parsed(plugin: str = STARVING_JOBS) -> ParsedPolicy:
    raw = {"profiles": [{"name": "default", "plugins": {"balance": {"enabled": [plugin]}}}]}
    policy = DeschedulerPolicy(metadata=meta(POLICY), spec=msgspec.convert(raw, DeschedulerPolicySpec))
    run: PolicyRun | PolicyError
    try:
        run = read_policy(policy, RunDefaults(), PluginRegistry.discover(OWN_PLUGINS, []))
    except PolicyError as error:
        run = error
    return ParsedPolicy(policy, run)


class World:
    """A full node that is kept for the job `large`."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.policies = {POLICY: parsed()}
        self.plans: list[MigrationPlan] = []
        self.kept: list[int] = []
        leading = Leading(
            client=self.cluster,  # type: ignore[arg-type]
            clock=FakeClock(),
            picture=Picture(self.cluster, "berth-system"),  # type: ignore[arg-type]
            known_policies=lambda: self.policies,
            known_plans=lambda: self.plans,
            show_kept_nodes=self.kept.append,
        )
        self.controller = KeptNodesSweep(leading)
        self.cluster.add(NODES, node("n1"))
        self.cluster.hold = lambda _: None

    def wait(self, name: str, cpu: str = "10", **labels: str) -> Raw:
        raw = pod(name, name, "", cpu=cpu)
        del raw["spec"]["nodeName"], raw["metadata"]["ownerReferences"]
        raw["metadata"]["labels"] = labels
        raw["status"] = {"phase": "Pending", "conditions": UNPLACED}
        return self.cluster.add(PODS, raw)

    def reserve(
        self,
        *,
        policy: str = POLICY,
        replicas: int = 1,
        together: bool = False,
        **status: Any,  # noqa: ANN401 - a status
    ) -> None:
        template = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "10", "memory": "1Gi"}}}]}}
        task = {"name": "a", "replicas": replicas, "template": template, "reservationNodeNames": ["n1"]}
        body = {
            "metadata": {
                "name": "starving-large",
                "namespace": "shop",
                "uid": "uid-reservation",
                "labels": {STARVING_JOB_LABEL: "uid-large"},
                "annotations": {POLICY_LABEL: policy} if policy else {},
            },
            "spec": {
                "owners": [{"object": {"kind": "Pod", "name": "large"}}],
                "tasks": [task],
                "capacity": "WhenFree",
                "fence": "Node",
                "allOrNothing": together,
            },
            "status": {"state": {"phase": "Waiting"}, **status},
        }
        self.cluster.add(RESERVATIONS, body)

    def fence(self, namespace: str = "berth-system") -> None:
        raw = pod("fence", "fence", "n1", cpu="0")
        raw["metadata"] |= {"namespace": namespace, "labels": {STANDING_FENCE_LABEL: "pods"}}
        self.cluster.add(PODS, raw)

    def passes(self, number: int = 1) -> None:
        for _ in range(number):
            self.controller.pass_once()

    @property
    def is_kept(self) -> bool:
        return bool(self.cluster.objects["reservations"])

    @property
    def kept_spec(self) -> Raw:
        (found,) = self.cluster.objects["reservations"].values()
        spec: Raw = found["spec"]
        return spec

    def events(self) -> list[tuple[str, str]]:
        return [(one["involvedObject"]["name"], one["reason"]) for one in self.cluster.objects["events"].values()]


@pytest.fixture
def world() -> World:
    return World()


def test_what_a_starving_job_needs_is_kept(world: World) -> None:
    world.wait("large")
    world.reserve()
    world.passes(5)
    assert world.is_kept


def test_the_metric_of_kept_nodes_is_zero_once_nothing_is_kept(world: World) -> None:
    world.wait("large")
    world.reserve()
    world.fence()
    world.passes()
    assert world.kept[-1] == 1
    world.policies = {}
    world.passes(2)
    assert not world.is_kept
    assert world.kept[-1] == 0


def test_no_call_is_made_where_the_plugin_is_not_used(world: World) -> None:
    world.policies = {POLICY: parsed("Defragmentation")}
    world.passes()
    assert [call.verb for call in world.cluster.calls if call.plural == "reservations"] == ["list"]  # at the start
    before = len(world.cluster.calls)
    world.passes(3)
    assert len(world.cluster.calls) == before


@pytest.mark.parametrize(
    ("case", "policies"),
    [("its policy is gone", {}), ("its policy enables another plugin", {POLICY: parsed("Defragmentation")})],
)
def test_what_is_kept_goes_as_soon_as(world: World, case: str, policies: dict[str, ParsedPolicy]) -> None:
    world.wait("large")
    world.reserve()
    world.policies = policies
    world.passes()
    assert not world.is_kept, case


@pytest.mark.parametrize(
    ("case", "policies", "policy"),
    [
        ("its policy cannot be read for now", {POLICY: parsed("Missing")}, POLICY),
        ("it was made by hand, of no policy", {}, ""),
    ],
)
def test_what_is_kept_stays_though(world: World, case: str, policies: dict[str, ParsedPolicy], policy: str) -> None:
    world.wait("large")
    world.reserve(policy=policy)
    world.policies = policies
    world.passes(5)
    assert world.is_kept, case


def test_what_a_policy_made_that_came_and_went_between_two_looks_goes(world: World) -> None:
    world.policies = {}
    world.passes()
    world.wait("large")
    world.reserve()
    spec = MigrationPlanSpec(objective=Objective(plugin=STARVING_JOBS))
    world.plans = [MigrationPlan(metadata=meta("plan"), spec=spec, status=MigrationPlanStatus(phase=PlanPhase.RUNNING))]
    world.passes()
    assert not world.is_kept


def test_what_a_job_needs_no_more_goes_at_the_second_look(world: World) -> None:
    large = world.wait("large")
    world.reserve()
    large["spec"]["nodeName"] = "n1"
    world.passes()
    assert world.is_kept
    world.passes()
    assert not world.is_kept


def test_a_job_that_needs_another_number_of_slots_gets_a_new_reservation(world: World) -> None:
    world.wait("large")
    world.reserve(replicas=2)
    world.passes(2)
    assert not world.is_kept


def wait_for_fewer(world: World) -> None:
    world.wait("large")
    world.reserve(replicas=2, together=True)
    world.passes()
    assert "minAvailable" not in world.kept_spec, "a pod may be replaced in between"
    world.passes()


def test_a_gang_whose_pods_were_partly_placed_elsewhere_keeps_its_reservation_and_wants_fewer_slots(
    world: World,
) -> None:
    wait_for_fewer(world)
    assert world.kept_spec["minAvailable"] == 1
    before = len(world.cluster.calls)
    world.passes(3)
    assert not [call for call in world.cluster.calls[before:] if call.verb in {"patch", "delete"}]


@pytest.mark.parametrize(("error", "status"), [(InvalidObjectError, 422), (ForbiddenError, 403)])
def test_a_gang_gets_a_new_reservation_where_the_crd_or_the_rules_are_older(
    world: World, error: type[KubeError], status: int
) -> None:
    refused = error(call("patch", RESERVATIONS, "starving-large"), failure(status))
    world.cluster.faults["patch reservations"] = [refused]
    wait_for_fewer(world)
    assert not world.is_kept


def test_a_hand_over_is_not_interrupted(world: World) -> None:
    world.reserve(slots=[{"task": "a", "index": 0, "state": "HandingOver", "node": "n1"}])
    world.passes(5)
    assert world.is_kept


def test_a_gang_whose_pods_wait_gated_for_the_others_keeps_its_slots(world: World) -> None:
    world.wait("large", **{RESERVATION_LABEL: "uid-reservation"})
    world.reserve()
    world.passes(5)
    assert world.is_kept


@pytest.mark.parametrize(("reason", "is_kept"), [("NodeLost", False), ("Preempted", False), ("Expired", True)])
def test_a_job_is_tried_again_unless_it_was_given_up(world: World, reason: str, is_kept: bool) -> None:  # noqa: FBT001 - of a table
    world.wait("large")
    world.reserve(state={"phase": "Failed", "reason": reason})
    world.passes(3)
    assert world.is_kept is is_kept


def test_a_failed_deletion_is_tried_again(world: World) -> None:
    world.reserve()
    world.policies = {}
    error = ServerError(call("delete", RESERVATIONS, "starving-large"), failure(500))
    world.cluster.faults["delete reservations"] = [error]
    world.passes()
    assert world.is_kept
    world.passes()
    assert not world.is_kept


def test_pods_that_a_fence_keeps_off_hear_why_but_not_those_that_it_lets_in(world: World) -> None:
    world.wait("large")
    world.reserve()
    small, nothing = world.wait("small", "1"), world.wait("nothing")
    nothing["spec"]["containers"] = [{"name": "a"}]
    world.passes()
    assert world.events() == []  # nothing is fenced

    world.fence()
    world.passes(3)
    (found,) = world.cluster.objects["events"].values()
    assert (found["involvedObject"]["name"], found["involvedObject"]["uid"]) == ("small", small["metadata"]["uid"])
    assert found["reason"] == "NodeResourceReserved"
    assert found["message"] == "node(s) resource was(were) reserved: n1 is kept for a starving job"
    assert found["count"] == 1
    assert world.kept[-1] == 1


def test_pods_beyond_the_events_of_one_sweep_hear_why_at_the_next(world: World) -> None:
    world.wait("large")
    world.reserve()
    for number in range(51):
        world.wait(f"small-{number}", "1")
    world.fence()

    world.passes()
    assert len(world.cluster.objects["events"]) == 50
    world.passes(2)
    heard = [event["involvedObject"]["name"] for event in world.cluster.objects["events"].values()]
    assert sorted(heard) == sorted(f"small-{number}" for number in range(51))


def test_a_pod_of_a_tenant_that_is_labelled_as_a_fence_keeps_no_node(world: World) -> None:
    world.wait("large")
    world.reserve()
    world.wait("small", cpu="1")
    world.fence("shop")
    world.passes(3)
    assert world.events() == []
    assert world.kept[-1] == 0
