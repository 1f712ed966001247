"""Actions become calls; what is refused, gone or no longer ours to do is told apart."""

from typing import Any

import msgspec
import pytest

from berth_core.labels import HANDOVER_GATE, RESERVATION_LABEL
from berth_core.names import WEBHOOK_CONFIGURATION, probe_name
from berth_core.objects import Container, Pod, ResourceRequirements
from berth_core.reservations import (
    API_VERSION,
    KIND,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    ReservationTask,
    SlotState,
)
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, NotFoundError, RefusedError, ServerError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator.executor.executor import LeaseLostError
from berth_operator.metrics import REGISTRY
from berth_operator.quota.limits import LimitSettings
from berth_operator.reconcile.actions import (
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Nominate,
    Probe,
    Release,
    Ungate,
    Validate,
)
from berth_operator.reconcile.observation import Verdict
from builders import as_api, task
from fake_api import error
from handover_builders import PLACE_UID, note, owner_pod, place, placeholder, slot
from operator_desk import Desk, desk

__all__ = ["desk"]

# --- placeholders


def test_a_placeholder_comes_with_its_priority_class(desk: Desk) -> None:
    calls = desk.perform(CreatePlaceholder(task(), 0))
    assert [call.split()[0:2] for call in calls if not call.startswith("get")] == [
        ["create", "priorityclasses"],
        ["create", "pods"],
    ]
    (made,) = desk.cache.placeholders()
    assert made.spec.priority_class_name == "berth-placeholder-0"
    assert made.spec.containers[0].resources.requests["cpu"] == "100m"


def test_a_placeholder_that_is_there_already_is_taken_as_it_is(desk: Desk) -> None:
    desk.perform(CreatePlaceholder(task(), 0))
    (first,) = desk.cache.placeholders()
    desk.perform(CreatePlaceholder(task(), 0))
    assert desk.cache.placeholders() == (first,)


def test_the_kubelet_is_told_when_to_end_a_placeholder(desk: Desk) -> None:
    desk.perform(CreatePlaceholder(task(), 0), of=place(ttl="100s"))
    (made,) = desk.cache.placeholders()
    assert made.spec.active_deadline_seconds == 160


def test_a_placeholder_of_a_far_expiry_has_the_longest_deadline_that_the_api_takes(desk: Desk) -> None:
    desk.perform(CreatePlaceholder(task(), 0), of=place(ttl="2000000h"))
    (made,) = desk.cache.placeholders()
    assert made.spec.active_deadline_seconds == 2**31 - 1


VERDICTS = {
    "the API server refuses the object": (error(InvalidObjectError, "bad"), ReservationReason.INVALID, "task web: bad"),
    "a quota refuses it": (
        error(ForbiddenError, "exceeded quota: few"),
        ReservationReason.FORBIDDEN,
        "task web: exceeded quota: few",
    ),
}


@pytest.mark.parametrize(("fault", "reason", "message"), VERDICTS.values(), ids=VERDICTS.keys())
def test_a_placeholder_that_is_refused_for_good_is_a_verdict(
    desk: Desk, fault: KubeError, reason: ReservationReason, message: str
) -> None:
    desk.know(of=place())
    desk.perform(CreatePlaceholder(task(), 0))
    (made,) = desk.cache.placeholders()
    desk.api.faults[f"create pods {made.metadata.name}"] = fault
    desk.perform(CreatePlaceholder(task(), 0))
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is not None
    assert (seen.verdict.reason, seen.verdict.message) == (reason, message)


def test_a_lack_of_rights_is_no_verdict_on_the_reservation(desk: Desk) -> None:
    desk.know(of=place())
    desk.api.faults["create priorityclasses berth-placeholder-0"] = error(ForbiddenError, "no right to create")
    with pytest.raises(ForbiddenError):
        desk.perform(CreatePlaceholder(task(), 0))
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is None


def test_a_placeholder_that_is_gone_already_is_forgotten(desk: Desk) -> None:
    desk.cache.put_placeholder(placeholder())
    desk.perform(DeletePlaceholder(placeholder()))
    assert desk.cache.placeholders() == ()


def held_since(start: str | None, *, deleted: str | None = None) -> Pod:
    made = placeholder(deleted=deleted)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time=start))


WASTED = {
    "a place that nobody came to take": (held_since("2026-11-21T11:59:18Z"), {}, 42.0),
    "a place that an owner is about to take": (held_since("2026-11-21T11:59:18Z"), {"for_owner": True}, 0.0),
    "a place that was not held yet": (held_since(None), {}, 0.0),
    "a place that is given up already": (held_since("2026-11-21T11:59:18Z", deleted="2026-11-21T12:00:00Z"), {}, 0.0),
    "a place of a node whose clock is ahead": (held_since("2026-11-21T12:00:09Z"), {}, 0.0),
}


@pytest.mark.parametrize(("pod", "how", "want_seconds"), WASTED.values(), ids=WASTED.keys())
def test_the_time_for_which_a_place_was_held_in_vain_is_counted(
    desk: Desk, pod: Pod, how: dict[str, bool], want_seconds: float
) -> None:
    desk.api.put(PODS, as_api(pod))
    desk.cache.put_placeholder(pod)
    before = REGISTRY.get_sample_value("berth_reserved_wasted_seconds_total") or 0.0

    desk.perform(DeletePlaceholder(pod, **how))

    after = REGISTRY.get_sample_value("berth_reserved_wasted_seconds_total") or 0.0
    assert after - before == want_seconds


# --- validation and proof


def test_every_template_is_put_to_the_api_server(desk: Desk) -> None:
    both = place(tasks=[task("web"), task("db")])
    desk.know(of=both)
    calls = desk.perform(Validate(), of=both)
    assert sum(call.startswith("dry-run pods") for call in calls) == 4, "as a pod, and in its namespace"
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert (seen.validated, seen.verdict) == (True, None)


def test_what_the_api_server_says_of_a_template_is_told_without_our_own_words(desk: Desk) -> None:
    name = f"{probe_name(PLACE_UID)}-web"
    desk.know(of=place())
    desk.api.faults[f"dry-run pods {name}"] = error(
        InvalidObjectError, f'Pod "{name}" is invalid: spec.containers[0].image: Required value'
    )
    desk.perform(Validate())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is not None
    assert seen.verdict.message == "task web: spec.containers[0].image: Required value"


def test_an_unknown_field_of_a_template_is_named_with_what_would_be_right(desk: Desk) -> None:
    desk.know(of=place())
    told = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeSelektor"'
    desk.api.faults[f"dry-run pods {probe_name(PLACE_UID)}-web"] = error(RefusedError, told)
    desk.perform(Validate())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict == Verdict(
        ReservationReason.INVALID,
        "task web: unknown field template.spec.nodeSelektor: "
        "a template has the fields of a pod; correct the name or leave it out",
    )


ASKING = task(cpu="500m", memory=None)
NOTHING = task(cpu=None, memory=None)
UNSAID = (
    "spec.tasks[1].template.spec.containers[].resources.requests of task web name no amount, so nothing would be "
    "held: write what the pods request, as in cpu: 500m, or spec.tasks[1].requestsNothing: true if that is nothing"
)
ODD_REQUESTS = {
    "nothing is requested": (
        NOTHING,
        UNSAID,
    ),
    "nothing is requested, in zeros": (
        task(cpu="0", memory="0"),
        UNSAID,
    ),
    "nothing is requested, and that is meant": (msgspec.structs.replace(NOTHING, requests_nothing=True), ""),
    "something is requested, and nothing meant": (
        msgspec.structs.replace(ASKING, requests_nothing=True),
        "spec.tasks[1].requestsNothing is true, but the template of task web requests cpu 500m: drop either",
    ),
    "a limit alone, which is a request": (
        task(containers=[Container(name="app", resources=ResourceRequirements(limits={"cpu": "1"}))]),
        "",
    ),
}


@pytest.mark.parametrize(("odd", "want"), ODD_REQUESTS.values(), ids=ODD_REQUESTS.keys())
def test_a_template_that_requests_nothing_is_invalid_unless_it_says_so(
    desk: Desk, odd: ReservationTask, want: str
) -> None:
    both = place(tasks=[task("db", cpu="1"), odd])
    desk.know(of=both)
    desk.perform(Validate(), of=both)
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert (seen.verdict.message if seen.verdict else "") == want


def test_a_validation_that_could_not_be_made_is_made_again(desk: Desk) -> None:
    desk.know(of=place())
    desk.api.faults[f"dry-run pods {probe_name(PLACE_UID)}-web"] = error(ServerError)
    with pytest.raises(ServerError):
        desk.perform(Validate())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.validated is False


def test_a_reservation_that_is_gone_when_it_is_judged_takes_nothing_from_its_namespace(desk: Desk) -> None:
    most = LimitSettings().default.slots
    assert most is not None
    gone, other = (place(replicas=most, name=name, uid=f"uid-{name}") for name in ("gone", "other"))
    for one in (gone, other):
        desk.know(of=one)
    desk.cache.remove_reservation("uid-gone")
    desk.perform(Validate(), of=gone)
    desk.perform(Validate(), of=other)
    seen = desk.cache.observe("uid-other")
    assert seen is not None
    assert (seen.validated, seen.verdict) == (True, None)


def gate(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["schedulingGates"] = [{"name": HANDOVER_GATE}]
    body["metadata"]["labels"][RESERVATION_LABEL] = PLACE_UID
    return body


def gate_for_another(body: dict[str, Any]) -> dict[str, Any]:
    body = gate(body)
    body["metadata"]["labels"][RESERVATION_LABEL] = "another"
    return body


PROOFS = {
    "it comes back gated": (gate, True),
    "it comes back as it was": (dict, False),
    "it comes back gated for another": (gate_for_another, False),
}


@pytest.mark.parametrize(("answer", "want"), PROOFS.values(), ids=PROOFS.keys())
def test_the_path_is_proven_by_a_pod_that_comes_back_gated(desk: Desk, answer: Any, want: bool) -> None:  # noqa: ANN401, FBT001 - the case
    desk.know(of=place())
    desk.api.on_dry_run = answer
    desk.perform(Probe())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.probe is not None
    assert seen.probe.gated is want
    assert not [key for key in desk.api.objects if key[0] == "pods"]


def test_a_proof_covers_the_namespace_first_and_asks_twice_where_another_replica_may_not_have_heard_yet(
    desk: Desk,
) -> None:
    desk.know(of=place())
    calls = desk.perform(Probe())
    assert calls == [
        f"create mutatingwebhookconfigurations {WEBHOOK_CONFIGURATION}",
        f"dry-run pods {probe_name(PLACE_UID)}",
        f"dry-run pods {probe_name(PLACE_UID)}",
    ]


# --- owner pods


def test_a_pod_is_nominated_and_then_ungated(desk: Desk) -> None:
    owner = owner_pod(given=note())
    desk.know(owner)
    desk.perform(Nominate(owner, "node-a"), Ungate(owner))
    after = desk.stored(owner)
    assert after.status.nominated_node_name == "node-a"
    assert after.spec.scheduling_gates == ()


def test_a_nomination_that_is_refused_keeps_the_gate_on_and_other_pods_going(desk: Desk) -> None:
    first, second = owner_pod("web-0", given=note(0)), owner_pod("web-1", given=note(1))
    desk.know(first, second)
    desk.api.faults["merge pods web-0/status"] = error(ForbiddenError, "no right to pods/status")
    with pytest.raises(ForbiddenError):
        desk.perform(Nominate(first, "node-a"), Ungate(first), Nominate(second, "node-a"), Ungate(second))
    assert desk.stored(first).spec.scheduling_gates
    assert not desk.stored(second).spec.scheduling_gates


def test_a_server_that_fails_ends_the_row(desk: Desk) -> None:
    first, second = owner_pod("web-0"), owner_pod("web-1")
    desk.know(first, second)
    desk.api.faults["patch pods web-0"] = error(ServerError)
    with pytest.raises(ServerError):
        desk.perform(Release(first), Release(second))
    assert desk.stored(second).spec.scheduling_gates


def test_a_released_pod_loses_nomination_gate_label_and_note(desk: Desk) -> None:
    owner = owner_pod(given=note(), nominated_node="node-a")
    desk.know(owner)
    calls = desk.perform(Release(owner))
    after = desk.stored(owner)
    assert calls[:2] == ["merge pods web-0/status", "patch pods web-0"]
    assert (after.status.nominated_node_name, after.spec.scheduling_gates) == ("", ())
    assert (after.metadata.labels, after.metadata.annotations) == ({"app": "web"}, {})
    assert desk.cache.owners() == ()


NOT_OURS = {
    "of a scheduler's own choice": owner_pod(given=note(), nominated_node="node-z"),
    "of a pod without a note": owner_pod(nominated_node="node-a"),
    "of a pod that is bound": owner_pod(given=note(), nominated_node="node-a", node="node-a", gates=()),
}


@pytest.mark.parametrize("owner", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_a_nomination_that_is_not_ours_to_take_stays(desk: Desk, owner: Pod) -> None:
    desk.know(owner)
    desk.perform(Release(owner))
    assert desk.stored(owner).status.nominated_node_name == owner.status.nominated_node_name


def test_a_pod_that_is_gone_is_forgotten(desk: Desk) -> None:
    desk.cache.put_owner(owner_pod(given=note()))
    desk.perform(CompleteHandover(owner_pod(given=note())), Nominate(owner_pod(given=note()), "node-a"))
    assert desk.cache.owners() == ()


# --- status, lease, collection


def status(phase: ReservationPhase) -> ReservationStatus:
    return ReservationStatus(state=ReservationState(phase=phase, reason="SlotsHeld", message="1 of 1 slots are held"))


def test_a_status_is_written_where_it_differs_and_told_once(desk: Desk) -> None:
    desk.know(of=place())
    desk.executor.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert desk.recorder.write_next()
    assert [call.split()[:2] for call in desk.api.calls] == [["patch", "reservations"], ["create", "events"]]
    assert not desk.recorder.write_next()
    known = desk.cache.reservation(PLACE_UID)
    assert known is not None
    desk.api.calls.clear()
    desk.executor.write_status(known, status(ReservationPhase.AVAILABLE))
    assert desk.api.calls == []


def test_a_status_of_a_reservation_that_is_gone_is_the_word_that_it_is_gone(desk: Desk) -> None:
    desk.cache.put_reservation(place())
    with pytest.raises(NotFoundError):
        desk.executor.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert desk.cache.reservation(PLACE_UID) is None


def test_nothing_is_written_without_the_lease(desk: Desk) -> None:
    desk.know(owner_pod(), of=place())
    desk.leads = False
    desk.api.calls.clear()
    with pytest.raises(LeaseLostError):
        desk.perform(Release(owner_pod()))
    with pytest.raises(LeaseLostError):
        desk.executor.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert desk.api.calls == []


def test_a_lease_that_is_lost_in_the_middle_ends_the_row(desk: Desk) -> None:
    desk.know(owner_pod("web-0"), owner_pod("web-1"), of=place())
    answers = iter([True, False])
    desk.executor = desk.executor_that(lambda: next(answers))
    with pytest.raises(LeaseLostError):
        desk.perform(Release(owner_pod("web-0")), Release(owner_pod("web-1")))
    assert not desk.stored(owner_pod("web-0")).spec.scheduling_gates
    assert desk.stored(owner_pod("web-1")).spec.scheduling_gates


def test_a_collected_reservation_is_gone(desk: Desk) -> None:
    desk.know(of=place())
    desk.perform(DeleteReservation())
    desk.perform(DeleteReservation())
    assert desk.cache.reservation(PLACE_UID) is None


def test_a_status_that_somebody_else_changed_is_written_again(desk: Desk) -> None:
    ours = place(slot(SlotState.HELD))
    desk.know(of=ours)
    desk.executor.write_status(ours, ours.status)
    forged = ReservationStatus(state=ReservationState(phase=ReservationPhase.SUCCEEDED))
    body = as_api(ours, api_version=API_VERSION, kind=KIND) | {"status": msgspec.to_builtins(forged)}
    desk.api.put(RESERVATIONS, body)
    desk.cache.put_reservation(desk.api.get(RESERVATIONS, "place", namespace="default", type=Reservation))

    desk.executor.write_status(ours, ours.status)

    assert desk.api.get(RESERVATIONS, "place", namespace="default", type=Reservation).status == ours.status
    assert not desk.cache.is_forged(PLACE_UID)
