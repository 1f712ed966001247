"""`berth doctor` reports what keeps starving jobs from what their policies promise."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth_core import PodStatus
from berth_core.labels import FENCE_LIMITS_ANNOTATION, STARVING_JOB_LABEL
from berth_core.names import OPERATOR_LEASE
from berth_core.reservations import (
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
)
from berth_descheduler.capabilities.starving_jobs.findings import find_starving_troubles
from berth_descheduler.doctor.look import read_policies
from berth_descheduler.event_reasons import PodEventReason
from berth_kube.client import connect
from berth_kube.leases import Lease
from berth_sandbox.invariants import ClusterState, Invariant
from builders import meta, node, pod, reservation
from scripted_server import ScriptedServer, page


def policy_for_starving_jobs(**args: int) -> dict[str, Any]:
    profile = {
        "name": "default",
        "pluginConfig": [{"name": "StarvingJobs", "args": args}],
        "plugins": {"balance": {"enabled": ["StarvingJobs"]}},
    }
    return {"metadata": {"name": "starving", "uid": "u"}, "spec": {"profiles": [profile]}}


def kept(reason: ReservationReason, phase: ReservationPhase = ReservationPhase.PENDING) -> Reservation:
    state = ReservationState(phase=phase, reason=reason.value, message="as the operator says")
    status = ReservationStatus(state=state)
    return reservation("starving-train", status=status, labels={STARVING_JOB_LABEL: "uid-train"})


def troubles(
    folder: Path,
    *reservations: Reservation,
    policy: dict[str, Any] | None,
    limits: str = "10%,25%",
    events: tuple[Any, ...] = (),
) -> list[tuple[Invariant, str, str]]:
    """What is found on twenty nodes with one waiting pod."""
    waits = msgspec.structs.replace(pod("large"), status=PodStatus(phase="Pending"))
    lease = Lease(metadata=meta(OPERATOR_LEASE, annotations={FENCE_LIMITS_ANNOTATION: limits}))
    state = ClusterState(
        nodes=tuple(node(f"n{number}") for number in range(20)),
        pods=(waits,),
        reservations=reservations,
        leases=(lease,),
    )
    with ScriptedServer() as server:
        policies = "/apis/berth.volcano.sh/v1alpha1/deschedulerpolicies"
        server.on("GET", policies, page(*([policy] if policy else []))).on("GET", "/api/v1/events", page(*events))
        with connect(kubeconfig=server.kubeconfig(folder)) as client:
            seen = sorted(find_starving_troubles(client, state, read_policies(client)))
            asked = [request.query["fieldSelector"] for request in server.seen if "events" in request.path]
            assert asked == [f"reason={PodEventReason.NOTHING_RESERVED.value}"] * bool(policy)
    return [(violation.invariant, violation.target, violation.detail) for violation in seen]


@pytest.mark.parametrize(
    ("percent", "limits", "want"),
    [
        (10, "10%,25%", None),
        (50, "10%,25%", "it keeps up to 10 of 20 nodes, and the operator fences 2 for a namespace"),
        (50, "none,25%", "it keeps up to 10 of 20 nodes, and the operator fences 5 for all namespaces together"),
        (20, "3,25%", "it keeps up to 4 of 20 nodes, and the operator fences 3 for a namespace"),
        (50, "none,none", None),
        (50, "", None),
    ],
)
def test_a_policy_that_keeps_more_nodes_than_the_operator_fences_is_told(
    tmp_path: Path, percent: int, limits: str, want: str | None
) -> None:
    violations = troubles(tmp_path, policy=policy_for_starving_jobs(reservedNodePercent=percent), limits=limits)
    assert violations == ([(Invariant.STARVING_LIMIT, "deschedulerpolicy starving", want)] if want else [])


def test_a_room_that_may_not_be_fenced_or_that_nobody_takes_is_told(tmp_path: Path) -> None:
    room, detail = "reservation default/starving-train", "as the operator says"
    assert troubles(tmp_path, kept(ReservationReason.FENCE_LIMIT), policy=None) == [
        (Invariant.ROOM_UNFENCED, room, detail)
    ]
    held = kept(ReservationReason.SLOTS_HELD, ReservationPhase.AVAILABLE)
    assert troubles(tmp_path, held, policy=None) == [(Invariant.ROOM_UNCLAIMED, room, detail)]
    assert troubles(tmp_path, kept(ReservationReason.AWAITING_CAPACITY, ReservationPhase.WAITING), policy=None) == []


def test_a_job_that_no_waiting_helps_is_told_by_its_last_event(tmp_path: Path) -> None:
    def event(message: str, at: str, uid: str = "uid-default-large") -> dict[str, Any]:
        kind = "Warning" if message == large else "Normal"
        about = {"metadata": {"name": at}, "involvedObject": {"uid": uid}, "lastTimestamp": at}
        return {**about, "type": kind, "message": message}

    policy = policy_for_starving_jobs()
    earlier, later = "2026-11-21T11:00:00Z", "2026-11-21T11:30:00Z"
    large, behind = "LargerThanAnyNode: pod default/large requests cpu 64", "BehindAnotherJob: default/x waits"
    want = [(Invariant.STARVES_FOR_GOOD, "pod default/large", large)]
    assert troubles(tmp_path, policy=policy, events=(event(large, later), event(behind, earlier))) == want
    assert troubles(tmp_path, policy=policy, events=(event(large, earlier), event(behind, later))) == []
    assert troubles(tmp_path, policy=policy, events=(event(large, later, uid="uid-of-one-that-is-gone"),)) == []
