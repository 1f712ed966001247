"""What admission in Berth's own namespace refuses is asked for again, and says what was answered."""

from typing import Any

import pytest

from api_server_in_memory import error
from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.reservations import ReservationPhase, ReservationReason
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, RefusedError, ServerError
from berth_operator.reservation.act.priority_classes import UnfitPriorityClassError
from berth_operator.reservation.actions import CreatePlaceholder, Validate
from berth_operator.reservation.decide import Decision, decide
from berth_operator.reservation.manifests import build_validation_pod
from berth_operator.settings import OperatorSettings, PlaceholderSettings
from builders import task
from handover_builders import NOON, PLACE_UID, observe, place, placeholder
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]


def decided(harness: OperatorHarness) -> Decision:
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    return decide(seen, NOON, OperatorSettings())


def name_of_placeholder(harness: OperatorHarness) -> str:
    """Return the name of the placeholder of the first slot, which is created and forgotten for that."""
    harness.perform(CreatePlaceholder(task(), 0))
    (made,) = harness.cache.placeholders()
    harness.cache.remove_placeholder(made)
    del harness.api.objects["pods"]["berth-system", made.metadata.name]
    return made.metadata.name


REFUSALS = {
    "a LimitRange": error(ForbiddenError, "maximum cpu usage per Container is 1, but limit is 2"),
    "the default of a LimitRange": error(
        InvalidObjectError, "spec.containers[0].resources.requests: must be less than or equal to cpu limit of 500m"
    ),
    "a quota": error(ForbiddenError, "exceeded quota: few"),
    "Pod Security": error(ForbiddenError, 'violates PodSecurity "restricted:latest"'),
    "a policy": error(InvalidObjectError, 'ValidatingAdmissionPolicy "p" with binding "p" denied request: no'),
    "a webhook": error(RefusedError, 'admission webhook "w" denied the request: no'),
    "a webhook that fails": error(ServerError, 'failed calling webhook "w": connection refused'),
    "a missing right": error(ForbiddenError, 'User "berth-operator" cannot create resource "pods"'),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refused_placeholder_is_asked_for_again_and_the_last_answer_is_shown(
    harness: OperatorHarness, refusal: KubeError
) -> None:
    harness.know(of=place())
    harness.cache.put_verdict(PLACE_UID, None)
    name = name_of_placeholder(harness)
    for _ in range(2):  # the event is written once
        harness.api.faults[f"create pods {name}"] = [refusal]
        with pytest.raises(type(refusal)):
            harness.perform(CreatePlaceholder(task(), 0))

    decision = decided(harness)
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == (
        ReservationPhase.PENDING,
        ReservationReason.PLACEHOLDER_REFUSED,
    )
    assert decision.status.state.message == (
        f"0 of 1 slot is held; namespace berth-system takes no placeholder of task web: {refusal.message}; "
        "Berth tries again"
    )
    assert [type(action) for action in decision.actions] == [CreatePlaceholder]
    assert harness.recorder.write_next()
    (event,) = harness.api.objects["events"].values()
    assert (event["type"], event["reason"]) == ("Warning", ReservationReason.PLACEHOLDER_REFUSED)
    assert refusal.message in event.get("message", event.get("note", ""))
    assert not harness.recorder.write_next()

    harness.perform(CreatePlaceholder(task(), 0))
    after = decided(harness).status.state
    assert after is not None
    assert after.reason != ReservationReason.PLACEHOLDER_REFUSED


def test_a_refused_successor_is_shown_beside_the_places_that_are_held() -> None:
    refusal = "namespace berth-system takes no placeholder of task web: no"
    state = decide(observe(place(), placeholder(), refusal=refusal), NOON, OperatorSettings()).status.state
    assert state is not None
    assert (state.phase, state.reason) == (ReservationPhase.AVAILABLE, ReservationReason.SLOTS_HELD)
    assert state.message == f"1 of 1 slot is held; {refusal}; Berth tries again"


def test_a_class_that_was_just_made_is_no_refusal(harness: OperatorHarness) -> None:
    harness.know(of=place())
    name = name_of_placeholder(harness)
    harness.api.faults[f"create pods {name}"] = error(
        ForbiddenError, "no PriorityClass with name berth-placeholder-0 was found"
    )
    with pytest.raises(ForbiddenError):
        harness.perform(CreatePlaceholder(task(), 0))
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.refusal == ""


@pytest.mark.parametrize(
    "refusal",
    [
        error(InvalidObjectError, 'ValidatingAdmissionPolicy "p" with binding "p" denied request: no'),
        error(RefusedError, 'admission webhook "w" denied the request: no'),
    ],
)
def test_admission_in_our_namespace_is_no_verdict_on_a_template(harness: OperatorHarness, refusal: KubeError) -> None:
    harness.know(of=place())

    def refuse_in_our_namespace(body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["namespace"] == "berth-system":
            raise refusal
        return body

    harness.api.on_dry_run = refuse_in_our_namespace
    harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert (seen.validated, seen.verdict) == (True, None)


def test_defaults_of_a_limit_range_in_our_namespace_change_no_template() -> None:
    resources = {"requests": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, "limits": {"memory": "2Gi"}}
    template = {"spec": {"containers": [{"name": "a", "resources": resources}, {"name": "b"}, "odd"]}}
    pod = build_validation_pod("uid", "web", template, PlaceholderSettings())
    first, second, odd = pod["spec"]["containers"]
    assert first["resources"] == resources | {"limits": {"cpu": "2", "memory": "2Gi"}}
    assert (second, odd) == ({"name": "b"}, "odd")


# --- priority classes


def class_of(value: int, *, is_ours: bool, policy: str = "Never") -> dict[str, Any]:
    labels = {MANAGED_LABEL: MANAGED_BY_OPERATOR} if is_ours else {}
    meta = {"name": "berth-placeholder-1000", "uid": "uid-class", "labels": labels}
    return {"metadata": meta, "value": value, "preemptionPolicy": policy}


@pytest.mark.parametrize("unfit", [class_of(0, is_ours=True), class_of(1000, is_ours=True, policy="")])
def test_a_class_of_ours_that_means_something_else_is_made_anew(
    harness: OperatorHarness, unfit: dict[str, Any]
) -> None:
    harness.know_classes(unfit)
    harness.priorities.ensure(1000)
    stored = harness.api.objects["priorityclasses"]["", "berth-placeholder-1000"]
    assert (stored["value"], stored["preemptionPolicy"]) == (1000, "Never")


@pytest.mark.parametrize("unfit", [class_of(0, is_ours=False), class_of(1000, is_ours=False, policy="")])
def test_a_class_of_others_that_means_something_else_is_not_used(
    harness: OperatorHarness, unfit: dict[str, Any]
) -> None:
    harness.know_classes({"metadata": {"name": "high"}, "value": 1000}, unfit)
    asking = place(tasks=[task(priority_class_name="high")])
    harness.know(of=asking)
    with pytest.raises(UnfitPriorityClassError, match="is not Berth's"):
        harness.perform(CreatePlaceholder(asking.spec.tasks[0], 0), of=asking)
    assert harness.cache.placeholders() == ()
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert "PriorityClass berth-placeholder-1000 is not Berth's" in seen.refusal
    assert harness.api.objects["priorityclasses"]["", "berth-placeholder-1000"]["value"] == unfit["value"]


def test_a_placeholder_says_what_its_class_must_mean(harness: OperatorHarness) -> None:
    harness.perform(CreatePlaceholder(task(), 0))
    (body,) = harness.api.objects["pods"].values()
    assert (body["spec"]["priority"], body["spec"]["preemptionPolicy"]) == (0, "Never")
