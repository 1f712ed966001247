"""Whether the operator is there is found out before anything waits for it: absent within seconds, restarting with time.

The clock of the test moves only while the look waits.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from berth_core.clock import format_precise_timestamp
from berth_descheduler.migration.absent_programs import OPERATOR, SERVICE, why_absent
from berth_kube.errors import ForbiddenError, ServerError
from berth_kube.resources import LEASES, PODS
from builders import NOON, FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure

SECONDS = 6
HOME = "berth-system"


class Stage:
    """An operator's Lease, and what becomes of it while it is looked at."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.clock = FakeClock()

    def renew(self, ago: float = 0.0, holder: str | None = "op", ahead: float = 0.0) -> None:
        renewed = format_precise_timestamp(self.clock.now() - timedelta(seconds=ago - ahead))
        spec: dict[str, Any] = {"leaseDurationSeconds": SECONDS, "renewTime": renewed}
        named = {"holderIdentity": holder} if holder else {}
        self.cluster.add(LEASES, {"metadata": {"name": "berth-operator", "namespace": HOME}, "spec": {**spec, **named}})

    def add_pod(self, phase: str = "Pending") -> None:
        labels = {"app.kubernetes.io/component": "operator"}
        head = {"name": "berth-operator-1", "namespace": HOME, "labels": labels}
        self.cluster.add(PODS, {"metadata": head, "spec": {}, "status": {"phase": phase}})

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Have something happen that many seconds after the look began."""
        due, acted = self.clock.monotonic() + seconds, []

        def before(_verb: str, _plural: str, _name: str) -> None:
            if self.clock.monotonic() >= due and not acted:
                acted.append(True)
                act()

        self.cluster.before = before

    def look(self) -> tuple[str, float]:
        """What is said, and after how many seconds."""
        began = self.clock.monotonic()
        said = why_absent(self.cluster, self.clock, OPERATOR, namespace=HOME)  # type: ignore[arg-type]
        return said, self.clock.monotonic() - began


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_operator_that_renewed_a_moment_ago_is_there_at_once(stage: Stage) -> None:
    stage.renew(ago=SECONDS - 1)
    assert stage.look() == ("", 0)


def test_where_no_operator_ever_ran_it_is_said_within_seconds_and_what_to_do(stage: Stage) -> None:
    said, seconds = stage.look()
    assert said == (
        "no operator has ever run in the namespace berth-system: install Berth's chart, or name Berth's namespace"
    )
    assert seconds <= 3


def test_an_operator_that_stopped_long_ago_is_reported_within_seconds(stage: Stage) -> None:
    stage.renew(ago=3600)
    said, seconds = stage.look()
    assert said == (
        "no operator has been at work in the namespace berth-system since 2026-11-21T11:00:00.000000Z: "
        "see its Deployment there, and start it"
    )
    assert seconds <= 3


COMING = {
    "one that restarts": lambda stage: (stage.renew(ago=2, holder=None), stage.later(8, stage.renew)),
    "one that was killed, whose standby takes over": lambda stage: (stage.renew(ago=7), stage.later(5, stage.renew)),
    "one that has just been installed": lambda stage: (stage.add_pod(), stage.later(20, stage.renew)),
    "one that was away for an hour and is being started": lambda stage: (
        stage.renew(ago=3600),
        stage.add_pod(),
        stage.later(20, stage.renew),
    ),
    "one whose clock is an hour behind": lambda stage: (
        stage.renew(ago=3600),
        stage.later(1, lambda: stage.renew(ago=3600)),
    ),
    "one whose clock is an hour ahead": lambda stage: (
        stage.renew(ahead=3600),
        stage.later(1, lambda: stage.renew(ahead=3600)),
    ),
}


@pytest.mark.parametrize("begin", COMING.values(), ids=COMING)
def test_an_operator_that_is_about_to_come_is_not_refused(stage: Stage, begin: Callable[[Stage], object]) -> None:
    begin(stage)
    said, seconds = stage.look()
    assert said == ""
    assert seconds > 0


def test_an_operator_that_crashes_at_its_start_is_reported_with_its_pod(stage: Stage) -> None:
    stage.add_pod("Running")
    said, seconds = stage.look()
    assert said.startswith("no operator is at work in the namespace berth-system, though its pod berth-operator-1 is")
    assert "kubectl --namespace berth-system describe pods" in said
    assert seconds <= 31


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError(call("get", LEASES, "berth-operator"), failure(403, "no")),
        ServerError(call("get", LEASES, "berth-operator"), failure(500, "down")),
    ],
    ids=["without the right to read Leases", "while the API server is down"],
)
def test_where_it_cannot_be_known_nothing_is_refused(stage: Stage, error: Exception) -> None:
    stage.cluster.faults["get leases"] = [error]
    assert stage.look() == ("", 0)


def test_a_service_counts_in_whatever_namespace_it_is(stage: Stage) -> None:
    stage.cluster.start_service()
    said = why_absent(stage.cluster, stage.clock, SERVICE, namespace=None)  # type: ignore[arg-type]
    assert said == ""
    assert stage.clock.now() == NOON
