"""A new Reservation is decided on twice: when it is made, and when its places are held."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, ReservationPhase, SlotState
from berth_kube.errors import ServerError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.actions import Validate
from berth_operator.reservation.decide import Decision, may_validate_first
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.store.cache import Cache
from berth_operator.runtime.controller import Controller
from berth_operator.runtime.workqueue import Key, KeyKind, WorkQueue
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock, as_api, task
from handover_builders import PLACE_UID, PROVEN, decide_now, observe, owner_pod, place, placeholder, slot

PLACE_KEY = Key(KeyKind.RESERVATION, PLACE_UID)
NEW = place()
UNVALIDATED = {
    "a new one": (observe(NEW, validated=False), True),
    "one of several tasks": (observe(place(tasks=[task(), task("db")]), validated=False), True),
    "one that was validated": (observe(NEW), False),
    "one with a status": (observe(place(phase=ReservationPhase.PENDING), validated=False), False),
    "one with a placeholder": (observe(NEW, placeholder(node=""), validated=False), False),
    "one with an owner that came early": (observe(NEW, owner_pod(), validated=False), False),
    "one that expired before": (observe(place(ttl="1s", created="2026-11-21T11:00:00Z"), validated=False), False),
    "one that is being deleted": (observe(place(deleted="2026-11-21T12:00:01Z"), validated=False), False),
    "one that is impossible": (observe(place(tasks=[task(nodes=["No Name"])]), validated=False), False),
}


@pytest.mark.parametrize(("seen", "want"), UNVALIDATED.values(), ids=UNVALIDATED.keys())
def test_only_what_would_be_decided_to_be_validated_is_validated_first(seen: Observation, want: bool) -> None:  # noqa: FBT001 - the case
    assert may_validate_first(seen, NOON) is want
    decision = decide_now(seen)
    assert (decision.actions == (Validate(),)) or not want


SETTLED = {
    "a place that is held and proven": (observe(NEW, placeholder(), probe=PROVEN), True),
    "a place that is not proven": (observe(NEW, placeholder()), False),
    "a place that waits for its node": (observe(NEW, placeholder(node=""), probe=PROVEN), False),
    "one place of two": (observe(place(replicas=2), placeholder(), probe=PROVEN), False),
    "a place with an owner": (observe(NEW, placeholder(), owner_pod(), probe=PROVEN), False),
    "a place whose owners were looked for before it was held": (
        observe(NEW, placeholder(), probe=PROVEN, searched=True),
        False,
    ),
}


def with_status(seen: Observation, decision: Decision, **changes: Any) -> Observation:  # noqa: ANN401 - fields
    reservation = msgspec.structs.replace(seen.reservation, status=decision.status)
    return observe(reservation, *seen.placeholders.values(), *seen.owners, probe=seen.probe, **changes)


@pytest.mark.parametrize(("seen", "want"), SETTLED.values(), ids=SETTLED.keys())
def test_after_a_settled_status_nothing_else_is_decided(seen: Observation, want: bool) -> None:  # noqa: FBT001 - the case
    decision = decide_now(seen)
    assert decision.is_settled is want
    if want:
        again = decide_now(with_status(seen, decision, searched=False))
        assert (again.status, again.actions, again.seeks_owners) == (decision.status, (), decision.seeks_owners)
        assert again.wake_seconds == decision.wake_seconds


CHANGES: dict[str, tuple[Mapping[str, Any], bool]] = {
    "nothing but the status": ({}, False),
    "a label": ({"labels": {"team": "a"}}, True),
    "an annotation": ({"annotations": {"note": "a"}}, True),
    "the spec": ({"generation": 2}, True),
    "its deletion": ({"deletion_timestamp": "2026-11-21T12:00:01Z"}, True),
}


@pytest.mark.parametrize(("changes", "want"), CHANGES.values(), ids=CHANGES.keys())
def test_a_settled_reservation_is_looked_at_again_if_more_has_changed(changes: Mapping[str, Any], want: bool) -> None:  # noqa: FBT001 - the case
    queued: list[Key] = []
    cache = Cache(queued.append)
    cache.put_reservation(NEW)
    queued.clear()
    held = place(slot(SlotState.HELD))
    metadata = msgspec.structs.replace(NEW.metadata, resource_version="2", **changes)
    stored = msgspec.structs.replace(held, metadata=metadata)
    cache.put_written(PLACE_UID, held.status, cache.epoch, stored, is_settled=True)
    assert (PLACE_KEY in queued) is want
    assert cache.reservation(PLACE_UID) == stored


def test_an_unsettled_one_is_looked_at_again() -> None:
    queued: list[Key] = []
    cache = Cache(queued.append)
    cache.put_reservation(NEW)
    queued.clear()
    held = place(slot(SlotState.HELD))
    stored = msgspec.structs.replace(held, metadata=msgspec.structs.replace(NEW.metadata, resource_version="2"))
    cache.put_written(PLACE_UID, held.status, cache.epoch, stored)
    assert PLACE_KEY in queued


class Place:
    """An operator that leads and knows one new Reservation."""

    def __init__(self) -> None:
        self.api = ApiServerInMemory()
        self.queue = WorkQueue()
        cache = Cache(self.queue.add)
        scope = WebhookRegistration(
            self.api.as_client(),
            client_config=dict,
            live_namespaces=cache.live_namespaces,
            own_namespace="berth-system",
            timeout_seconds=2,
        )
        settings = OperatorSettings(workers=1)
        self.engine = Controller(self.api.as_client(), cache, self.queue, scope, settings, FakeClock())
        self.engine._lease.held = lambda: True  # type: ignore[method-assign]
        body = as_api(NEW, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
        self.api.put(RESERVATIONS, body)
        cache.put_reservation(NEW)

    def reason(self) -> str:
        stored = self.api.as_client().get(RESERVATIONS, NEW.metadata.name, namespace=NEW.metadata.namespace)
        return str(stored.get("status", {}).get("state", {}).get("reason", ""))

    def placeholders(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.as_client().list(PODS, namespace="berth-system").items]


def test_a_new_reservation_gets_its_placeholder_in_its_first_pass() -> None:
    stage = Place()
    stage.engine.workers.reconcile(PLACE_KEY)
    assert len(stage.placeholders()) == 1


def test_one_that_cannot_be_validated_says_so_before_each_further_try() -> None:
    stage = Place()
    stage.api.faults = {"create pods": error(ServerError, "not now")}
    stage.engine.workers.reconcile(PLACE_KEY)
    assert stage.reason() == ""
    stage.engine.workers.reconcile(PLACE_KEY)
    assert stage.reason() == "CreatingPlaceholders"
    stage.api.faults = {}
    for _ in ("validated", "made"):
        stage.engine.workers.reconcile(PLACE_KEY)
    assert len(stage.placeholders()) == 1
