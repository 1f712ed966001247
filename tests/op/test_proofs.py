"""The hand-over path is proven again and again: what breaks it is told soon, for all, and not for a single hiccup."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core.errors import RetryableError
from berth_core.labels import HANDOVER_GATE, PROBE_LABEL, PROBE_REGISTRATION_LABEL, RESERVATION_LABEL
from berth_core.names import WEBHOOK_CONFIGURATION, probe_name
from berth_core.reservations import Condition, ConditionType, Reservation, ReservationStatus, SlotState
from berth_kube.errors import ForbiddenError, ServerError
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.handover_probe import HandoverProbe
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.actions import Probe
from berth_operator.reservation.decide import decide
from berth_operator.reservation.manifests import ANY_REGISTRATION
from berth_operator.reservation.observation import ProbeResult
from berth_operator.reservation.store.cache import Cache
from berth_operator.runtime.workqueue import Key
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock
from handover_builders import PLACE_UID, observe, place, placeholder, slot


@dataclass
class Bench:
    """A prover beside an API server whose webhook is up or down."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    queued: list[Key] = field(default_factory=list)
    is_up: bool = True
    behind: int = 0
    """How many probes the API server still answers by an earlier registration."""

    def __post_init__(self) -> None:
        self.cache = Cache(self.queued.append)
        client = self.api.as_client()
        self.scope = WebhookRegistration(
            client,
            client_config=dict,
            live_namespaces=self.cache.live_namespaces,
            own_namespace="berth-system",
            timeout_seconds=2,
        )
        self.prover = HandoverProbe(Context(client, self.cache, OperatorSettings(), FakeClock()), self.scope)
        self.changes: list[bool] = []
        self.prover.on_change(lambda: self.changes.append(self.prover.proven))
        self.api.on_dry_run = self.gate

    def gate(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = body["metadata"]["labels"][PROBE_REGISTRATION_LABEL]
        self.behind -= asked != ANY_REGISTRATION
        if self.is_up and (asked == ANY_REGISTRATION or self.behind < 0):
            body["metadata"]["labels"][RESERVATION_LABEL] = body["metadata"]["labels"][PROBE_LABEL]
            body["spec"]["schedulingGates"] = [{"name": HANDOVER_GATE}]
        return body

    def gated(self, uid: str = PLACE_UID) -> bool | None:
        seen = self.cache.observe(uid)
        assert seen is not None
        return seen.probe.gated if seen.probe is not None else None


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.cache.put_reservation(place(slot(SlotState.HELD)))
    return made


def proven(reservation: Reservation) -> Reservation:
    ready = Condition(type=ConditionType.HANDOVER_READY, status="True", reason="ProbeGated")
    status = ReservationStatus(state=reservation.status.state, slots=reservation.status.slots, conditions=(ready,))
    return Reservation(metadata=reservation.metadata, spec=reservation.spec, status=status)


def test_the_path_is_known_after_one_probe_that_comes_back_gated(bench: Bench) -> None:
    assert not bench.prover.proven
    bench.prover.probe_path()
    assert bench.prover.proven
    assert bench.changes == [True]


def test_one_probe_that_fails_is_told_on_the_lease_and_two_in_every_reservation(bench: Bench) -> None:
    bench.prover.probe(place(slot(SlotState.HELD)))
    bench.prover.probe_path()
    bench.is_up = False

    bench.prover.probe_path()
    assert not bench.prover.proven
    assert bench.gated() is True

    bench.queued.clear()
    bench.prover.probe_path()
    assert bench.gated() is False
    assert [key.name for key in bench.queued] == [PLACE_UID]


def test_the_path_works_again_after_two_probes_that_come_back_gated(bench: Bench) -> None:
    bench.prover.probe(place(slot(SlotState.HELD)))
    for is_up, want in ((False, True), (False, False), (True, False), (True, True)):
        bench.is_up = is_up
        bench.prover.probe_path()
        assert bench.gated() is want


def test_a_probe_that_fails_has_the_registration_put_right(bench: Bench) -> None:
    bench.scope.reconcile()
    bench.api.objects.clear()
    bench.is_up = False
    bench.prover.probe_path()
    assert ("", WEBHOOK_CONFIGURATION) in bench.api.objects["mutatingwebhookconfigurations"]


@pytest.mark.parametrize("behind", [0, 2])
def test_a_reservation_is_proven_once_the_api_server_uses_its_registration(bench: Bench, behind: int) -> None:
    bench.behind = behind
    bench.prover.probe(place(slot(SlotState.HELD)))
    assert bench.gated() is True


def test_a_probe_that_an_earlier_registration_answers_has_no_result_and_is_tried_again(bench: Bench) -> None:
    bench.behind = 99
    with pytest.raises(RetryableError, match="does not use the webhook's registration as written yet"):
        bench.prover.probe(place(slot(SlotState.HELD)))
    assert bench.gated() is None
    bench.behind = 0
    bench.prover.probe_path()
    assert bench.gated() is True


def test_a_late_api_server_breaks_no_path_and_proves_no_new_reservation(bench: Bench) -> None:
    bench.prover.probe_path()
    late = place(slot(SlotState.HELD), uid="uid-late", name="late")
    late = msgspec.structs.replace(late, metadata=msgspec.structs.replace(late.metadata, resource_version="9"))
    bench.cache.put_reservation(late)
    bench.scope.reconcile()
    bench.behind = 3
    for _ in range(3):
        bench.prover.probe_path()
        assert bench.prover.proven
        assert bench.gated("uid-late") is None
    bench.prover.probe_path()
    assert bench.gated("uid-late") is True


def test_an_api_server_that_does_not_answer_proves_nothing(bench: Bench) -> None:
    bench.prover.probe_path()
    bench.api.faults[f"dry-run pods {probe_name(PLACE_UID)}"] = error(ServerError)
    for _ in range(3):
        bench.prover.probe_path()
    assert bench.prover.proven


def test_what_the_api_server_refuses_is_a_broken_path_with_its_words(bench: Bench) -> None:
    bench.api.faults[f"dry-run pods {probe_name(PLACE_UID)}"] = error(ForbiddenError, "no right to create pods")
    for _ in range(2):
        bench.prover.probe_path()
    seen = bench.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.probe is not None
    assert "no right to create pods" in seen.probe.message


def test_reservations_are_probed_for_in_turn_and_only_those_that_hold_a_slot(bench: Bench) -> None:
    bench.cache.put_reservation(place(slot(SlotState.HELD), name="b", uid="b"))
    bench.cache.put_reservation(place(slot(SlotState.HELD), name="a", uid="a"))
    bench.cache.put_reservation(place(slot(SlotState.PENDING), name="c", uid="c"))
    for _ in range(4):
        bench.prover.probe_path()
    asked = [call.split()[-1] for call in bench.api.calls if call.startswith("dry-run")]
    assert asked == [probe_name(uid) for uid in ("a", "b", PLACE_UID, "a")]


def test_the_path_is_proven_also_while_no_reservation_holds_a_slot_yet() -> None:
    bench = Bench()
    bench.cache.put_reservation(place(slot(SlotState.PENDING)))
    for _ in range(2):
        bench.prover.probe_path()
    assert bench.prover.proven
    bench.is_up = False
    bench.prover.probe_path()
    assert not bench.prover.proven


def test_what_an_earlier_process_proved_counts_once_the_path_works() -> None:
    bench = Bench()
    bench.cache.put_reservation(proven(place(slot(SlotState.HELD))))
    assert bench.gated() is None
    bench.prover.probe_path()
    assert bench.gated() is True


def at(version: str, name: str, **rest: Any) -> Reservation:  # noqa: ANN401 - a builder passes on what the case says
    made = place(slot(SlotState.PENDING), name=name, uid=name, **rest)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version=version))


SHARED = {
    "one that is older": (at("5", "other"), True),
    "one that is newer, and may not have been heard of": (at("9", "other"), None),
    "one in a namespace for which the webhook was not registered": (at("5", "other", namespace="elsewhere"), None),
}


@pytest.mark.parametrize(("other", "want"), SHARED.values(), ids=SHARED.keys())
def test_a_probe_that_comes_back_gated_speaks_for(other: Reservation, want: bool | None) -> None:  # noqa: FBT001
    bench = Bench()
    bench.cache.put_reservation(at("7", "probed"))
    bench.scope.reconcile()
    bench.prover.probe_path()
    bench.cache.put_reservation(other)
    assert bench.gated("other") is want


def test_a_probe_that_fails_speaks_for_nobody() -> None:
    bench = Bench(is_up=False)
    for one in (at("7", "probed"), at("5", "other")):
        bench.cache.put_reservation(one)
    bench.scope.reconcile()
    bench.prover.probe_path()
    assert bench.gated("other") is None


def test_what_is_proven_stays_so_when_the_reservation_changes(bench: Bench) -> None:
    bench.cache.put_reservation(at("7", "other"))
    bench.scope.reconcile()
    bench.prover.probe_path()
    assert bench.gated("other")
    bench.cache.put_reservation(at("9", "other"))
    assert bench.gated("other")


def test_the_newest_reservation_that_is_not_proven_is_probed_for_first(bench: Bench) -> None:
    for one in (at("5", "older"), at("9", "newest"), at("99", "elsewhere", namespace="elsewhere")):
        bench.cache.put_reservation(one)
    bench.scope.ensure("default")
    bench.api.calls.clear()
    bench.cache.remove_reservation("elsewhere")
    bench.prover.probe_path()
    assert {call.split()[-1] for call in bench.api.calls} == {probe_name("newest")}


def test_a_proof_is_asked_for_again_soon_while_a_reservation_lacks_it(bench: Bench) -> None:
    bench.scope.reconcile()
    bench.prover.probe_path()
    assert bench.gated()
    assert bench.prover._pause_seconds() == 2.0
    bench.cache.put_reservation(at("9", "new"))
    assert bench.prover._pause_seconds() == 0.5


def test_a_replica_that_lost_the_lease_knows_nothing_of_the_path(bench: Bench) -> None:
    bench.prover.probe_path()
    bench.prover.reset()
    assert not bench.prover.proven
    assert bench.cache.path() is None


BROKEN = ProbeResult(gated=False, message="", of_path=True)
PROBED = {
    "while nothing is known": (None, True),
    "while its own probe fails": (ProbeResult(gated=False, message=""), True),
    "while the path is broken for all": (BROKEN, False),
    "after its own proof": (ProbeResult(gated=True, message=""), False),
}


@pytest.mark.parametrize(("probe", "want"), PROBED.values(), ids=PROBED.keys())
def test_a_reservation_is_probed_for_by_itself(probe: ProbeResult | None, want: bool) -> None:  # noqa: FBT001 - what the case wants
    seen = observe(place(slot(SlotState.HELD)), placeholder(), probe=probe)
    assert (Probe() in decide(seen, NOON, OperatorSettings()).actions) is want
