"""Actions become calls; what is refused, gone or no longer ours to do is told apart."""

import threading
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from api_server_in_memory import error
from berth_core import Container, Pod, ResourceRequirements
from berth_core.errors import RetryableError
from berth_core.labels import HANDOVER_GATE, PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_core.names import WEBHOOK_CONFIGURATION, probe_name
from berth_core.reservations import (
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    ReservationTask,
    SlotState,
)
from berth_kube.errors import ForbiddenError, InvalidObjectError, NotFoundError, RefusedError, ServerError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator import telemetry
from berth_operator.metrics import REGISTRY
from berth_operator.quota.limits import LimitSettings
from berth_operator.reservation.act.context import NotLeadingError
from berth_operator.reservation.actions import (
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
from berth_operator.reservation.observation import Verdict
from builders import as_api, task
from handover_builders import PLACE_UID, note, owner_pod, place, placeholder, slot
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

# --- placeholders


def test_a_placeholder_comes_with_its_priority_class(harness: OperatorHarness) -> None:
    calls = harness.perform(CreatePlaceholder(task(), 0))
    assert [call.split()[0:2] for call in calls if not call.startswith("get")] == [
        ["create", "priorityclasses"],
        ["create", "pods"],
        ["create", "priorityclasses"],  # that of the fence, for its first hand-over
    ]
    (made,) = harness.cache.placeholders()
    assert made.spec.priority_class_name == "berth-placeholder-0"
    assert made.spec.containers[0].resources.requests["cpu"] == "100m"


def test_a_class_that_several_want_at_once_is_created_once(
    harness: OperatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    priorities, create = harness.priorities, harness.api.create
    others = [threading.Thread(target=priorities.ensure, args=(7,)) for _ in range(8)]

    def create_while_others_come(*args: Any, **rest: Any) -> Any:  # noqa: ANN401 - takes what the client takes
        for one in others:
            one.start()
        return create(*args, **rest)

    monkeypatch.setattr(harness.api, "create", create_while_others_come)
    priorities.ensure(7)
    for one in others:
        one.join(60)
    assert harness.api.calls == ["create priorityclasses berth-placeholder-7"]


def test_a_placeholder_that_is_there_already_is_taken_as_it_is(harness: OperatorHarness) -> None:
    harness.perform(CreatePlaceholder(task(), 0))
    (first,) = harness.cache.placeholders()
    harness.perform(CreatePlaceholder(task(), 0))
    assert harness.cache.placeholders() == (first,)


@pytest.mark.parametrize("label", [PLACEHOLDER_LABEL, RESERVATION_LABEL])
def test_a_pod_that_keeps_the_name_of_a_placeholder_without_its_labels_is_named(
    harness: OperatorHarness, label: str
) -> None:
    harness.know(of=place())
    harness.perform(CreatePlaceholder(task(), 0))
    (first,) = harness.cache.placeholders()
    harness.api.merge_patch(
        PODS, first.metadata.name, {"metadata": {"labels": {label: None}}}, namespace=first.metadata.namespace
    )
    harness.cache.remove_placeholder(first)  # as its watch reports it
    with pytest.raises(RetryableError):
        harness.perform(CreatePlaceholder(task(), 0))
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert f"pod {first.metadata.name} has the name of one, but has lost its labels; delete it" in seen.refusal


def test_the_kubelet_is_told_when_to_end_a_placeholder(harness: OperatorHarness) -> None:
    harness.perform(CreatePlaceholder(task(), 0), of=place(ttl="100s"))
    (made,) = harness.cache.placeholders()
    assert made.spec.active_deadline_seconds == 160


def test_a_placeholder_of_a_far_expiry_has_the_longest_deadline_that_the_api_takes(harness: OperatorHarness) -> None:
    harness.perform(CreatePlaceholder(task(), 0), of=place(ttl="2000000h"))
    (made,) = harness.cache.placeholders()
    assert made.spec.active_deadline_seconds == 2**31 - 1


def test_a_lack_of_rights_is_no_verdict_on_the_reservation(harness: OperatorHarness) -> None:
    harness.know(of=place())
    harness.api.faults["create priorityclasses berth-placeholder-0"] = error(ForbiddenError, "no right to create")
    with pytest.raises(ForbiddenError):
        harness.perform(CreatePlaceholder(task(), 0))
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is None


def test_a_placeholder_that_is_gone_already_is_forgotten(harness: OperatorHarness) -> None:
    harness.cache.put_placeholder(placeholder())
    harness.perform(DeletePlaceholder(placeholder()))
    assert harness.cache.placeholders() == ()


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
    harness: OperatorHarness, pod: Pod, how: dict[str, bool], want_seconds: float
) -> None:
    harness.api.put(PODS, as_api(pod))
    harness.cache.put_placeholder(pod)
    before = REGISTRY.get_sample_value("berth_reserved_wasted_seconds_total") or 0.0

    harness.perform(DeletePlaceholder(pod, **how))

    after = REGISTRY.get_sample_value("berth_reserved_wasted_seconds_total") or 0.0
    assert after - before == want_seconds


# --- validation and proof


def test_every_template_is_put_to_the_api_server(harness: OperatorHarness) -> None:
    both = place(tasks=[task("web"), task("db")])
    harness.know(of=both)
    calls = harness.perform(Validate(), of=both)
    assert sum(call.startswith("dry-run pods") for call in calls) == 4, "as a pod, and in its namespace"
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert (seen.validated, seen.verdict) == (True, None)


def test_what_the_api_server_says_of_a_template_is_told_without_our_own_words(harness: OperatorHarness) -> None:
    name = f"{probe_name(PLACE_UID)}-web"
    harness.know(of=place())
    harness.api.faults[f"dry-run pods {name}"] = error(
        InvalidObjectError, f'Pod "{name}" is invalid: spec.containers[0].image: Required value'
    )
    harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is not None
    assert seen.verdict.message == "task web: spec.containers[0].image: Required value"


def test_an_unknown_field_of_a_template_is_named_with_what_would_be_right(harness: OperatorHarness) -> None:
    harness.know(of=place())
    told = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeSelektor"'
    harness.api.faults[f"dry-run pods {probe_name(PLACE_UID)}-web"] = error(RefusedError, told)
    harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
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
    harness: OperatorHarness, odd: ReservationTask, want: str
) -> None:
    both = place(tasks=[task("db", cpu="1"), odd])
    harness.know(of=both)
    harness.perform(Validate(), of=both)
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert (seen.verdict.message if seen.verdict else "") == want


def test_a_validation_that_could_not_be_made_is_made_again(harness: OperatorHarness) -> None:
    harness.know(of=place())
    harness.api.faults[f"dry-run pods {probe_name(PLACE_UID)}-web"] = error(ServerError)
    with pytest.raises(ServerError):
        harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.validated is False


def test_a_reservation_that_is_gone_when_it_is_judged_takes_nothing_from_its_namespace(
    harness: OperatorHarness,
) -> None:
    most = LimitSettings().default.slots
    assert most is not None
    gone, other = (place(replicas=most, name=name, uid=f"uid-{name}") for name in ("gone", "other"))
    for one in (gone, other):
        harness.know(of=one)
    harness.cache.remove_reservation("uid-gone")
    harness.perform(Validate(), of=gone)
    harness.perform(Validate(), of=other)
    seen = harness.cache.observe("uid-other")
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
def test_the_path_is_proven_by_a_pod_that_comes_back_gated(harness: OperatorHarness, answer: Any, want: bool) -> None:  # noqa: ANN401, FBT001 - the case
    harness.know(of=place())
    harness.api.on_dry_run = answer
    harness.perform(Probe())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.probe is not None
    assert seen.probe.gated is want
    assert not harness.api.objects["pods"]


def test_a_proof_covers_the_namespace_first_and_asks_again_for_this_registration_and_then_for_any(
    harness: OperatorHarness,
) -> None:
    harness.know(of=place())
    calls = harness.perform(Probe())
    assert calls == [
        f"create mutatingwebhookconfigurations {WEBHOOK_CONFIGURATION}",
        *[f"dry-run pods {probe_name(PLACE_UID)}"] * 3,
    ]


# --- owner pods


def test_a_pod_is_nominated_and_then_ungated(harness: OperatorHarness) -> None:
    owner = owner_pod(given=note())
    harness.know(owner)
    harness.perform(Nominate(owner, "node-a"), Ungate(owner))
    after = harness.stored(owner)
    assert after.status.nominated_node_name == "node-a"
    assert after.spec.scheduling_gates == ()


def test_a_nomination_that_is_refused_keeps_the_gate_on_and_other_pods_going(harness: OperatorHarness) -> None:
    first, second = owner_pod("web-0", given=note(0)), owner_pod("web-1", given=note(1))
    harness.know(first, second)
    harness.api.faults["merge pods web-0/status"] = error(ForbiddenError, "no right to pods/status")
    with pytest.raises(ForbiddenError):
        harness.perform(Nominate(first, "node-a"), Ungate(first), Nominate(second, "node-a"), Ungate(second))
    assert harness.stored(first).spec.scheduling_gates
    assert not harness.stored(second).spec.scheduling_gates


def test_a_server_that_fails_ends_the_row(harness: OperatorHarness) -> None:
    first, second = owner_pod("web-0"), owner_pod("web-1")
    harness.know(first, second)
    harness.api.faults["patch pods web-0"] = error(ServerError)
    with pytest.raises(ServerError):
        harness.perform(Release(first), Release(second))
    assert harness.stored(second).spec.scheduling_gates


def test_a_released_pod_loses_nomination_gate_label_and_note(harness: OperatorHarness) -> None:
    owner = owner_pod(given=note(), nominated_node="node-a")
    harness.know(owner)
    calls = harness.perform(Release(owner))
    after = harness.stored(owner)
    assert calls[:2] == ["merge pods web-0/status", "patch pods web-0"]
    assert (after.status.nominated_node_name, after.spec.scheduling_gates) == ("", ())
    assert (after.metadata.labels, after.metadata.annotations) == ({"app": "web"}, {})
    assert harness.cache.owners() == ()


NOT_OURS = {
    "of a scheduler's own choice": owner_pod(given=note(), nominated_node="node-z"),
    "of a pod without a note": owner_pod(nominated_node="node-a"),
    "of a pod that is bound": owner_pod(given=note(), nominated_node="node-a", node="node-a", gates=()),
}


@pytest.mark.parametrize("owner", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_a_nomination_that_is_not_ours_to_take_stays(harness: OperatorHarness, owner: Pod) -> None:
    harness.know(owner)
    harness.perform(Release(owner))
    assert harness.stored(owner).status.nominated_node_name == owner.status.nominated_node_name


def test_a_pod_that_is_gone_is_forgotten(harness: OperatorHarness) -> None:
    harness.cache.put_owner(owner_pod(given=note()))
    harness.perform(CompleteHandover(owner_pod(given=note())), Nominate(owner_pod(given=note()), "node-a"))
    assert harness.cache.owners() == ()


# --- status, lease, collection


def status(phase: ReservationPhase) -> ReservationStatus:
    return ReservationStatus(state=ReservationState(phase=phase, reason="SlotsHeld", message="1 of 1 slot is held"))


def test_a_status_is_written_where_it_differs_and_told_once(harness: OperatorHarness) -> None:
    harness.know(of=place())
    harness.executor.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert harness.recorder.write_next()
    assert [call.split()[:2] for call in harness.api.calls] == [["patch", "reservations"], ["create", "events"]]
    assert not harness.recorder.write_next()
    known = harness.cache.reservation(PLACE_UID)
    assert known is not None
    harness.api.calls.clear()
    harness.executor.write_status(known, status(ReservationPhase.AVAILABLE))
    assert harness.api.calls == []


def test_a_status_of_a_reservation_that_is_gone_is_the_word_that_it_is_gone(harness: OperatorHarness) -> None:
    harness.cache.put_reservation(place())
    with pytest.raises(NotFoundError):
        harness.executor.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert harness.cache.reservation(PLACE_UID) is None


def test_nothing_is_written_without_the_lease(harness: OperatorHarness) -> None:
    harness.know(owner_pod(), of=place())
    harness.leads = False
    harness.api.calls.clear()
    with pytest.raises(NotLeadingError):
        harness.perform(Release(owner_pod()))
    with pytest.raises(NotLeadingError):
        harness.executor.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert harness.api.calls == []


def test_a_lease_that_is_lost_in_the_middle_ends_the_row(harness: OperatorHarness) -> None:
    harness.know(owner_pod("web-0"), owner_pod("web-1"), of=place())
    answers = iter([True, False])
    harness.executor = harness.executor_that(lambda: next(answers))
    with pytest.raises(NotLeadingError):
        harness.perform(Release(owner_pod("web-0")), Release(owner_pod("web-1")))
    assert not harness.stored(owner_pod("web-0")).spec.scheduling_gates
    assert harness.stored(owner_pod("web-1")).spec.scheduling_gates


def test_a_collected_reservation_is_gone(harness: OperatorHarness) -> None:
    harness.know(of=place())
    harness.perform(DeleteReservation())
    harness.perform(DeleteReservation())
    assert harness.cache.reservation(PLACE_UID) is None


def test_a_status_without_a_time_that_can_be_is_dated_and_logged(harness: OperatorHarness) -> None:
    undated = place(slot(SlotState.RELEASED), phase=ReservationPhase.FAILED, since="")
    harness.know(of=undated)
    dated = place(slot(SlotState.RELEASED), phase=ReservationPhase.FAILED)
    with capture_logs() as logs:
        harness.executor.write_status(undated, dated.status)
        harness.executor.write_status(dated, dated.status)
    assert [log["event"] for log in logs] == [telemetry.STATUS_DATED]
    assert harness.api.get(RESERVATIONS, "place", namespace="default", type=Reservation).status == dated.status


def test_a_status_that_somebody_else_changed_is_written_again(harness: OperatorHarness) -> None:
    ours = place(slot(SlotState.HELD))
    harness.know(of=ours)
    harness.executor.write_status(ours, ours.status)
    forged = ReservationStatus(state=ReservationState(phase=ReservationPhase.SUCCEEDED))
    body = as_api(ours, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND) | {
        "status": msgspec.to_builtins(forged)
    }
    harness.api.put(RESERVATIONS, body)
    harness.cache.put_reservation(harness.api.get(RESERVATIONS, "place", namespace="default", type=Reservation))

    harness.executor.write_status(ours, ours.status)

    assert harness.api.get(RESERVATIONS, "place", namespace="default", type=Reservation).status == ours.status
    assert not harness.cache.is_forged(PLACE_UID)
