"""A Reservation of a queue that does not exist waits a while for it, and is Invalid then."""

from datetime import timedelta

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import OwnerReference
from berth_core.errors import RetryableError
from berth_core.gated_queues import QUEUE_API_VERSION
from berth_core.labels import QUEUE_ANNOTATION
from berth_core.queues import QUEUE_KIND
from berth_core.reservations import Reservation, ReservationReason
from berth_kube.errors import ForbiddenError, KubeError, NotFoundError
from berth_kube.resources import NAMESPACES, QUEUES, VOLCANO_QUEUES
from berth_operator.capabilities.queues.rule import QueueRule
from berth_operator.reservation.actions import Validate
from berth_operator.reservation.decide import decide
from berth_operator.reservation.observation import Observation
from berth_operator.settings import OperatorSettings
from builders import NOON, as_api, queue
from handover_builders import PLACE_UID, place
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

IN_ML = place(queue="ml")


def observed(harness: OperatorHarness) -> Observation:
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    return seen


def state(harness: OperatorHarness) -> tuple[str, str, str]:
    found = decide(observed(harness), harness.clock.now(), harness.settings).status.state
    assert found is not None
    return found.phase.value, found.reason, found.message


def validate(harness: OperatorHarness, reservation: Reservation = IN_ML) -> None:
    harness.know(of=reservation)
    harness.perform(Validate(), of=reservation)


def test_a_queue_that_may_still_come_leaves_the_reservation_pending_and_says_which_there_are(
    harness: OperatorHarness,
) -> None:
    harness.api.put(VOLCANO_QUEUES, as_api(queue("default")))

    with pytest.raises(RetryableError):
        validate(harness)

    assert not observed(harness).validated
    phase, reason, message = state(harness)
    assert (phase, reason) == ("Pending", ReservationReason.UNKNOWN_QUEUE)
    assert 'spec.queue is "ml", which is no Queue of the cluster; expected default' in message


def test_a_reservation_that_waits_for_its_queue_is_looked_at_again_once_and_then_after_pauses(
    harness: OperatorHarness,
) -> None:
    for want in (1, 0, 0):
        harness.know(of=IN_ML)
        harness.queued.clear()
        with pytest.raises(RetryableError):
            harness.perform(Validate(), of=IN_ML)
        assert len(harness.queued) == want


def test_a_queue_that_comes_a_moment_later_is_as_good(harness: OperatorHarness) -> None:
    with pytest.raises(RetryableError):
        validate(harness)

    harness.clock.advance(30)
    harness.api.put(VOLCANO_QUEUES, as_api(queue("ml")))
    validate(harness)

    assert (observed(harness).validated, observed(harness).verdict) == (True, None)


OWN = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": "ml"}, "spec": {}}


def test_a_queue_of_berth_beside_those_of_volcano_is_as_good(harness: OperatorHarness) -> None:
    harness.api.put(VOLCANO_QUEUES, as_api(queue("default")))
    harness.api.put(QUEUES, OWN)

    validate(harness)

    assert (observed(harness).validated, observed(harness).verdict) == (True, None)


def test_volcano_knows_no_queue_of_berth(harness: OperatorHarness) -> None:
    harness.api.put(VOLCANO_QUEUES, as_api(queue("default")))
    harness.api.put(QUEUES, OWN)

    with pytest.raises(RetryableError):
        validate(harness, place(queue="ml", scheduler_name="volcano"))


def test_after_a_minute_without_its_queue_it_is_invalid(harness: OperatorHarness) -> None:
    harness.clock.advance(timedelta(minutes=2).total_seconds())

    validate(harness)

    phase, reason, message = state(harness)
    assert (phase, reason) == ("Failed", ReservationReason.INVALID)
    assert message == 'spec.queue is "ml", which is no Queue of the cluster; expected one'


@pytest.mark.parametrize("kind", [NotFoundError, ForbiddenError], ids=lambda one: one.__name__)
def test_where_there_are_no_queues_or_they_may_not_be_listed_any_name_will_do(
    harness: OperatorHarness, kind: type[KubeError]
) -> None:
    harness.api.faults["list volcanoqueues "] = error(kind)

    validate(harness)

    assert (observed(harness).validated, observed(harness).verdict) == (True, None)


def test_without_a_queue_no_queues_are_listed(harness: OperatorHarness) -> None:
    harness.know(of=place())

    assert not [call for call in harness.perform(Validate()) if "queues" in call]


def test_a_reservation_that_is_deleted_while_it_waits_leaves_nothing_behind(harness: OperatorHarness) -> None:
    with pytest.raises(RetryableError):
        validate(harness)
    harness.cache.remove_reservation(PLACE_UID)

    assert not harness.cache.choices()
    harness.queued.clear()
    with pytest.raises(RetryableError):
        validate(harness)
    assert harness.queued, "one of the same uid is told again"


def test_the_queue_of_a_reservation_is_noted_where_schedulers_with_queues_look_for_it(harness: OperatorHarness) -> None:
    rule = QueueRule(harness.api.as_client())
    assert rule.placeholder_annotations(place(queue="batch")) == {QUEUE_ANNOTATION: "batch"}
    assert not rule.placeholder_annotations(place())


def test_a_slot_of_a_queue_waits_for_as_long_as_the_queue_asks_for_it(harness: OperatorHarness) -> None:
    rule = QueueRule(harness.api.as_client())
    owner = OwnerReference(api_version=QUEUE_API_VERSION, kind=QUEUE_KIND, name="ml", uid="uid-ml", controller=True)
    of_queue = msgspec.structs.replace(
        place(), metadata=msgspec.structs.replace(place().metadata, owner_references=(owner,))
    )
    assert rule.is_patient(of_queue)
    assert not rule.is_patient(place(queue="ml"))


# --- which queue counts it


def test_a_reservation_says_which_queues_count_it(harness: OperatorHarness) -> None:
    api = harness.api
    counted_in = lambda of=IN_ML: QueueRule(api.as_client()).counted_in(of)  # noqa: E731
    assert counted_in() == ("no queue of Volcano, as none can be listed; no queue of Berth by the namespace default")
    api.put(VOLCANO_QUEUES, as_api(queue("ml")))
    team = {"metadata": {"name": "team", "uid": "team"}, "spec": {"namespaceSelector": {"matchLabels": {"of": "us"}}}}
    api.put(QUEUES, team)
    api.put(NAMESPACES, {"metadata": {"name": "default", "uid": "ns", "labels": {"of": "us"}}})
    by_extender = ", which counts other schedulers' pods with the extender only"
    own = '; queue "team" of Berth by the namespace default'
    assert counted_in() == f'queue "ml" of Volcano by spec.queue{by_extender}{own}'
    assert counted_in(place(queue="ml", scheduler_name="volcano")) == f'queue "ml" of Volcano by spec.queue{own}'
    assert counted_in(place()) == "", "it names none"


def test_the_status_has_what_rules_say_of_queues() -> None:
    seen = Observation(reservation=IN_ML, counted_in="queue q")
    assert decide(seen, NOON, OperatorSettings()).status.counted_in == "queue q"
