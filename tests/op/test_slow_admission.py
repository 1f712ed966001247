"""Admission that hangs keeps few workers, and no hand-over back."""

from typing import Any

import pytest

from api_server_in_memory import error
from berth_core.reservations import ReservationReason, SlotState
from berth_kube.errors import ServerError
from berth_kube.resources import NODES
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.guards import NodeGuard
from berth_operator.reservation.act.slow_admission import SlowAdmission, SlowAdmissionError
from berth_operator.reservation.actions import Action, AssignSlot, CreatePlaceholder, Release, Validate
from berth_operator.reservation.decide import decide
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock, task
from handover_builders import DEADLINE, PLACE_UID, note, owner_pod, place, slot
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

WEBHOOK_SECONDS = 10.0
"""How long API servers wait for a webhook by default (`timeoutSeconds`)."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def admission(clock: FakeClock) -> SlowAdmission:
    """Of eight workers, two may wait for slow namespaces."""
    return SlowAdmission(8, clock.monotonic)


def let_it_hang(admission: SlowAdmission, clock: FakeClock, namespace: str) -> None:
    with admission.asking(namespace):
        clock.advance(WEBHOOK_SECONDS)


def test_a_quarter_of_the_workers_waits_for_slow_namespaces(admission: SlowAdmission, clock: FakeClock) -> None:
    for namespace in ("sick", "sicker"):
        let_it_hang(admission, clock, namespace)
    with admission.asking("sick"), admission.asking("sicker"):
        for namespace in ("sick", "sicker"):
            slow = pytest.raises(SlowAdmissionError, match=f"in namespace {namespace} takes longer than 4 s")
            with slow, admission.asking(namespace):
                pytest.fail("it was asked")
        with admission.asking("well"), admission.asking("well"), admission.asking("well"):
            pass
    with admission.asking("sick"):
        pass  # there is a place again


def test_a_namespace_is_slow_while_a_call_hangs_there_for_the_first_time(
    admission: SlowAdmission, clock: FakeClock
) -> None:
    with admission.asking("sick"), admission.asking("sick"), admission.asking("sick"):
        clock.advance(WEBHOOK_SECONDS)
        with pytest.raises(SlowAdmissionError), admission.asking("sick"):
            pytest.fail("it was asked")


def test_a_quick_answer_ends_it(admission: SlowAdmission, clock: FakeClock) -> None:
    let_it_hang(admission, clock, "sick")
    with admission.asking("sick"):
        clock.advance(0.1)
    with admission.asking("sick"), admission.asking("sick"), admission.asking("sick"):
        pass


def test_slow_namespaces_take_turns(admission: SlowAdmission, clock: FakeClock) -> None:
    """However many pods are tried in one of them: Berth's own may be among them, and every Reservation needs it."""
    for namespace in ("sick", "sicker", "berth-system"):
        let_it_hang(admission, clock, namespace)
    with admission.asking("sick"):
        with admission.asking("sick"):
            for namespace in ("berth-system", "sicker", "sick"):
                with pytest.raises(SlowAdmissionError), admission.asking(namespace):
                    pytest.fail("it was asked")
            clock.advance(WEBHOOK_SECONDS)
        for namespace in ("sick", "sicker"):
            with pytest.raises(SlowAdmissionError), admission.asking(namespace):
                pytest.fail("it was asked out of turn")
        with admission.asking("berth-system"):
            pass
        with admission.asking("berth-system"):
            pass  # it answers quickly again, and is one of the slow ones no more
        with admission.asking("sicker"):
            pass


def test_a_turn_that_is_not_taken_is_over_after_a_while(admission: SlowAdmission, clock: FakeClock) -> None:
    for namespace in ("sick", "sicker"):
        let_it_hang(admission, clock, namespace)
    with admission.asking("sick"):
        with admission.asking("sick"):
            with pytest.raises(SlowAdmissionError), admission.asking("sicker"):
                pytest.fail("it was asked")
            clock.advance(WEBHOOK_SECONDS)
        with pytest.raises(SlowAdmissionError), admission.asking("sick"):
            pytest.fail("it was asked out of turn")
        clock.advance(60)
        with admission.asking("sick"):
            pass


def test_what_can_be_done_without_waits_for_no_slow_namespace(admission: SlowAdmission, clock: FakeClock) -> None:
    with admission.asking("sick", is_dispensable=True):
        clock.advance(WEBHOOK_SECONDS)
    with pytest.raises(SlowAdmissionError), admission.asking("sick", is_dispensable=True):
        pytest.fail("it was asked")
    clock.advance(600)  # it may be well by then
    with admission.asking("sick", is_dispensable=True):
        pass


HANGS = error(ServerError, 'failed calling webhook "w": context deadline exceeded')


def state(harness: OperatorHarness) -> tuple[str, str]:
    """Return the reason and the message that the status gets."""
    observation = harness.cache.observe(PLACE_UID)
    assert observation is not None
    decided = decide(observation, NOON, OperatorSettings()).status.state
    assert decided is not None
    return decided.reason, decided.message


def hang(harness: OperatorHarness, namespace: str) -> None:
    """Have dry runs in a namespace take as long as a webhook that does not answer."""

    def wait_in_vain(body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["namespace"] == namespace:
            harness.clock.advance(WEBHOOK_SECONDS)
            raise HANGS
        return body

    harness.api.on_dry_run = wait_in_vain


@pytest.mark.parametrize("namespace", ["default", "berth-system"])
def test_a_status_says_that_admission_does_not_answer_about_the_template(
    harness: OperatorHarness, namespace: str
) -> None:
    harness.know(of=place())
    hang(harness, namespace)
    with pytest.raises(ServerError):
        harness.perform(Validate())
    text = "0 of 1 slot is held; no pod of task web can be tried: {}; Berth tries again"
    assert state(harness) == (ReservationReason.PLACEHOLDER_REFUSED, text.format(HANGS.message))

    with harness.admission.asking(namespace), pytest.raises(SlowAdmissionError) as slow:
        harness.perform(Validate())
    assert state(harness) == (ReservationReason.PLACEHOLDER_REFUSED, text.format(slow.value))
    assert f"namespace {namespace}" in str(slow.value)

    harness.api.on_dry_run = lambda body: body
    harness.perform(Validate())
    assert state(harness) == (ReservationReason.CREATING_PLACEHOLDERS, "0 of 1 slot is held")


def test_a_status_forgets_what_hung_once_a_template_of_equal_shape_is_accepted(harness: OperatorHarness) -> None:
    """Its own template is asked about no more."""
    alike = place(uid="uid-alike", name="alike")
    harness.know(of=place())
    harness.know(of=alike)
    hang(harness, "default")
    with pytest.raises(ServerError):
        harness.perform(Validate())
    harness.api.on_dry_run = lambda body: body
    harness.perform(Validate(), of=alike)
    assert not [call for call in harness.perform(Validate()) if call.startswith("create")]
    assert state(harness) == (ReservationReason.CREATING_PLACEHOLDERS, "0 of 1 slot is held")


def test_no_placeholder_is_tried_beside_one_that_hangs(harness: OperatorHarness) -> None:
    harness.know(of=place())
    let_it_hang(harness.admission, harness.clock, "berth-system")
    with harness.admission.asking("berth-system"), pytest.raises(SlowAdmissionError):
        harness.perform(CreatePlaceholder(task(), 0))
    assert not [call for call in harness.api.calls if call.startswith("create pods")]
    assert "takes no placeholder of task web: admission in namespace berth-system takes longer" in state(harness)[1]


@pytest.mark.parametrize("action", [AssignSlot(owner_pod(), note()), Release(owner_pod())])
def test_no_hand_over_begins_beside_one_that_hangs(harness: OperatorHarness, action: Action) -> None:
    harness.know(owner_pod(), of=place(slot(SlotState.HELD)))
    let_it_hang(harness.admission, harness.clock, "default")
    harness.api.calls.clear()
    with harness.admission.asking("default"), pytest.raises(SlowAdmissionError):
        harness.executor.execute(place(), (action,))
    assert not [call for call in harness.api.calls if call.startswith("patch pods")]
    assert harness.perform(action)


def test_a_hand_over_goes_on_without_a_fence_while_admission_hangs(harness: OperatorHarness) -> None:
    status = {"allocatable": {"pods": "110"}}
    harness.api.put(NODES, {"metadata": {"name": "node-a", "uid": "uid-node-a"}, "spec": {}, "status": status})
    harness.cache.put_node(harness.api.get(NODES, "node-a", type=GuardableNode))
    harness.know(owner_pod(given=note(deadline=DEADLINE)), of=place(slot(SlotState.HELD)))
    let_it_hang(harness.admission, harness.clock, "berth-system")
    harness.api.calls.clear()
    NodeGuard(harness.context, FenceManager(harness.context, harness.priorities)).reconcile("node-a", NOON)
    assert harness.cache.guards.deadline("node-a") == str(DEADLINE)
    assert not [call for call in harness.api.calls if call.startswith("create pods")]
