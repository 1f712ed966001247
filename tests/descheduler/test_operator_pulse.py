"""Whether the operator is alive is read off its Lease, by our own clock once it was seen to change."""

from datetime import timedelta
from typing import Any

import pytest

from berth_core.clock import format_precise_timestamp
from berth_core.labels import PATH_ANNOTATION, PATH_PROVEN
from berth_descheduler.migration.operator.liveness import OperatorLiveness
from berth_kube.errors import ServerError
from berth_kube.resources import LEASES
from builders import NOON, FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure

DURATION_SECONDS = 8
STRANGE_CLOCK = timedelta(hours=1)


class Stage:
    """An operator that renews its Lease when told, and the pulse that is taken of it."""

    def __init__(self, *, ahead: timedelta = timedelta(0)) -> None:
        self.cluster = FakeCluster()
        self.clock = FakeClock()
        self.ahead = ahead
        self.pulse = OperatorLiveness(self.cluster, self.clock, "berth-system")  # type: ignore[arg-type]

    def renew(self, holder: str | None = "op", *, proven: bool = True) -> None:
        renewed = format_precise_timestamp(self.clock.now() + self.ahead)
        spec: dict[str, Any] = {"leaseDurationSeconds": DURATION_SECONDS, "renewTime": renewed}
        notes = {PATH_ANNOTATION: PATH_PROVEN} if proven else {}
        head = {"name": "berth-operator", "namespace": "berth-system", "annotations": notes}
        self.cluster.add(LEASES, {"metadata": head, "spec": spec | ({"holderIdentity": holder} if holder else {})})

    def look(self, seconds_later: float = 0.0) -> str:
        self.clock.advance(seconds_later)
        return self.pulse.problem()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_operator_that_renewed_just_now_is_alive(stage: Stage) -> None:
    stage.renew()
    assert stage.look(2.4) == ""


def test_an_operator_that_missed_a_renewal_is_silent_until_it_renews(stage: Stage) -> None:
    stage.renew()
    assert stage.look(5) == "the operator has been silent for 5 s; is berth-operator running?"
    stage.renew()
    assert stage.look(1) == ""
    assert stage.look(1.4) == ""
    assert stage.look(0.2) != ""


def test_an_operator_whose_pods_do_not_come_back_gated_is_not_counted_on(stage: Stage) -> None:
    stage.renew(proven=False)
    want = "the operator's dry-run pods do not come back gated now; is its webhook up, or is it too old?"
    assert stage.look(1) == want
    stage.renew()
    assert stage.look(1) == ""


@pytest.mark.parametrize("ahead", [STRANGE_CLOCK, timedelta(0)], ids=["ahead", "alike"])
def test_an_operator_that_died_long_before_a_look_is_not_alive_because_its_lease_changed_since_the_last(
    ahead: timedelta,
) -> None:
    stage = Stage(ahead=ahead)
    stage.renew()
    stage.look(1)
    stage.renew()
    assert stage.look(1) == ""
    stage.clock.advance(10)
    stage.renew()
    assert stage.look(50) != ""


def test_an_operator_that_stopped_is_silent_at_once(stage: Stage) -> None:
    stage.renew()
    assert stage.look() == ""
    stage.renew(holder=None)
    assert stage.look(1) == "no operator holds its lease; is berth-operator running?"


def test_where_no_operator_ever_ran_it_says_so(stage: Stage) -> None:
    assert stage.look() == "no operator has ever run here; is berth-operator running?"


@pytest.mark.parametrize("ahead", [STRANGE_CLOCK, -STRANGE_CLOCK], ids=["ahead", "behind"])
def test_where_clocks_differ_a_renewal_has_to_be_seen(ahead: timedelta) -> None:
    stage = Stage(ahead=ahead)
    stage.renew()
    assert stage.look(1) != ""
    stage.renew()
    assert stage.look(1) == ""
    assert stage.look(5) != ""


def test_a_server_that_does_not_answer_is_no_sign_of_life(stage: Stage) -> None:
    stage.renew()
    stage.cluster.faults["get leases"] = [ServerError(call("get", LEASES, "berth-operator"), failure(500, "down"))]
    assert "down" in stage.look()
    assert stage.look(1) == ""


def test_evictions_close_together_share_a_look(stage: Stage) -> None:
    stage.renew()
    for _ in range(10):
        assert stage.look(0.01) == ""
    assert len(stage.cluster.calls) == 1
    assert stage.clock.now() - NOON < timedelta(seconds=1)
