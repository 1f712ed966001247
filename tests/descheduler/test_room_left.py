"""A move that was to make room and did not take place: those that need the room are skipped at once, others are not."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from berth_core.clock import SystemClock, format_timestamp
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, PlannedMove, Predicted
from berth_core.reservations import ObjectReference
from berth_descheduler.migration.manifests.move_reservations import build_reservation
from berth_descheduler.migration.manifests.plans import PlanIdentity, build_plan
from berth_descheduler.migration.validation.space_on_targets import insufficient_targets
from berth_descheduler.settings import CycleSettings
from berth_kube.errors import ServerError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, REPLICA_SETS, RESERVATIONS
from descheduler.cycle_settings import SETTINGS, impatient
from descheduler.fake_cluster import FakeCluster, Raw, call, failure, node, pod, replica_set
from descheduler.test_cycle import owner_of, run


def move(name: str, source: str, target: str, wave: int, cpu: str) -> PlannedMove:
    owner = ObjectReference(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name=name, uid=f"uid-{name}")
    return PlannedMove(
        namespace="shop",
        pod=f"{name}-1",
        pod_uid=f"uid-{name}-1",
        owner=owner,
        source=source,
        target=target,
        wave=wave,
        requests={"cpu": cpu, "memory": "1Gi", "pods": "1"},
    )


def tight_cluster(**large: str) -> FakeCluster:
    """A node with half a core free once filled, a small pod of it that may go, and pods that are to come to it.

    `large` gives the cores of each pod that is to come, by the name of its controller.
    """
    cluster = FakeCluster()
    cluster.start_operator()
    for name in ("kept", "third", *(f"from-{one}" for one in large)):
        cluster.add(NODES, node(name))
    for name in ("fixed", "small", *large):
        cluster.add(REPLICA_SETS, replica_set(name, 1))
    cluster.add(PODS, pod("fixed-1", "fixed", "kept", cpu="8"))
    cluster.add(PODS, pod("small-1", "small", "kept", cpu="1500m"))
    moves = [move("small", "kept", "third", 0, "1500m")]
    for name, cpu in large.items():
        cluster.add(PODS, pod(f"{name}-1", name, f"from-{name}", cpu=cpu))
        moves.append(move(name, f"from-{name}", "kept", 1, cpu))
    predicted = Predicted(nodes=4, moves=len(moves), waves=2, freed_nodes=tuple(f"from-{one}" for one in large))
    spec = MigrationPlanSpec(approved=True, moves=tuple(moves), predicted=predicted)
    cluster.create(MIGRATION_PLANS, build_plan("tight", spec))
    begun = {"phase": "Running", "startTime": format_timestamp(SystemClock().now())}
    cluster.merge_patch(MIGRATION_PLANS, "tight", {"status": begun}, subresource="status")
    return cluster


def fail_the_small_one(cluster: FakeCluster) -> None:
    def hold(reservation: Raw) -> None:
        if owner_of(reservation) == "small":
            cluster.set_reservation(reservation, "Failed")
        else:
            cluster.hold_at_once(reservation)

    cluster.hold = hold


def carried_out(cluster: FakeCluster, settings: CycleSettings = SETTINGS) -> dict[str, tuple[str, str]]:
    outcome = run(cluster, settings)
    (found,) = outcome.adopted
    return {status.pod: (status.state.value, status.reason) for status in found.statuses}


CASES: dict[str, tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]] = {
    "what needs the room is skipped": ({"large": "2"}, {"large-1": ("Skipped", "RoomNotMade")}),
    "what fits without it moves": ({"slim": "500m"}, {"slim-1": ("Landed", "")}),
    "of two, the first has what is left": (
        {"slim": "400m", "thin": "200m"},
        {"slim-1": ("Landed", ""), "thin-1": ("Skipped", "RoomNotMade")},
    ),
    "what does not fit leaves the rest to the next": (
        {"large": "1", "slim": "500m"},
        {"large-1": ("Skipped", "RoomNotMade"), "slim-1": ("Landed", "")},
    ),
}


@pytest.mark.parametrize(("large", "want"), CASES.values(), ids=CASES)
def test_a_move_whose_room_was_not_made(large: Mapping[str, str], want: Mapping[str, tuple[str, str]]) -> None:
    cluster = tight_cluster(**large)
    fail_the_small_one(cluster)

    assert carried_out(cluster) == {"small-1": ("Failed", "ReservationFailed"), **want}


def test_nothing_is_reserved_for_it_and_the_plan_says_why() -> None:
    cluster = tight_cluster(large="2")
    fail_the_small_one(cluster)

    (found,) = run(cluster).adopted

    assert [owner_of(one) for one in cluster.reservations("tight")] == []
    assert "evict pods large-1" not in cluster.calls
    assert found.statuses[1].message == "the room that a move off kept was to make is missing: not enough cpu"
    assert cluster.taints() == {}


def test_a_place_that_an_interrupted_run_has_reserved_is_used() -> None:
    cluster = tight_cluster(large="2")
    plan = MigrationPlan.from_api(cluster.plan())
    statuses = [
        {"namespace": "shop", "pod": "small-1", "state": "Failed", "reason": "ReservationFailed"},
        {"namespace": "shop", "pod": "large-1", "state": "Reserved"},
    ]
    cluster.merge_patch(
        MIGRATION_PLANS, "tight", {"status": {"phase": "Running", "moves": statuses}}, subresource="status"
    )
    identity, raw = PlanIdentity(name="tight", uid=plan.metadata.uid), cluster.objects["pods"]["shop", "large-1"]
    cluster.create(RESERVATIONS, build_reservation(identity, 1, plan.spec.moves[1], raw, timedelta(minutes=5)))

    assert carried_out(cluster)["large-1"] == ("Landed", "")


def test_a_pod_goes_where_its_room_was_made() -> None:
    assert carried_out(tight_cluster(large="2")) == {"small-1": ("Landed", ""), "large-1": ("Landed", "")}


def test_a_pod_that_left_by_itself_made_its_room() -> None:
    cluster = tight_cluster(large="2")

    def gone(verb: str, plural: str, _name: str) -> None:
        with cluster.lock:
            if (verb, plural) == ("create", "reservations") and ("shop", "small-1") in cluster.objects["pods"]:
                cluster.remove(PODS, cluster.objects["pods"]["shop", "small-1"])

    cluster.before = gone
    assert carried_out(cluster, impatient("land_seconds"))["large-1"] == ("Landed", "")


def test_a_node_that_cannot_be_read_is_taken_to_have_room() -> None:
    cluster = tight_cluster(large="2")
    cluster.faults["get nodes"] = [ServerError(call("get", NODES, "kept"), failure(503, "later"))]

    assert insufficient_targets(cluster, {1: move("large", "from-large", "kept", 1, "2")}) == {}  # type: ignore[arg-type]


def test_a_pod_takes_a_slot_though_its_move_names_none() -> None:
    cluster = tight_cluster(large="2")
    amounts = {"cpu": "100", "memory": "640Gi", "pods": "2"}
    cluster.merge_patch(NODES, "kept", {"status": {"allocatable": amounts}}, subresource="status")
    without = PlannedMove(namespace="shop", pod="p", source="third", target="kept", requests={"cpu": "1"})

    assert insufficient_targets(cluster, {0: without}) == {0: ("pods",)}  # type: ignore[arg-type]


def test_what_needs_the_room_of_a_skipped_move_is_skipped_too() -> None:
    cluster = tight_cluster(large="2")
    cluster.add(NODES, node("last"))
    cluster.add(REPLICA_SETS, replica_set("next", 1))
    cluster.add(PODS, pod("next-1", "next", "last", cpu="9"))
    plan = cluster.plan()
    chained = move("next", "last", "from-large", 2, "9")
    moves = [*plan["spec"]["moves"], *build_plan("x", MigrationPlanSpec(moves=(chained,)))["spec"]["moves"]]
    cluster.merge_patch(MIGRATION_PLANS, "tight", {"spec": {"moves": moves, "predicted": {"freedNodes": ["last"]}}})
    fail_the_small_one(cluster)

    found = carried_out(cluster)

    assert found["large-1"] == found["next-1"] == ("Skipped", "RoomNotMade")
