import json

import pytest

from berth_core.reservations import ObjectReference
from berth_kube import KubeClient
from berth_kube.events import build_event, record_event
from builders import FakeClock
from scripted_server import Reply, Reset, ScriptedServer, answer, refusal

pytestmark = pytest.mark.timeout(300)

RESERVATION = ObjectReference(
    api_version="batch.volcano.sh/v1alpha1", kind="Reservation", namespace="default", name="r1", uid="u1"
)
PLAN = ObjectReference(api_version="berth.volcano.sh/v1alpha1", kind="MigrationPlan", name="p1", uid="u2")
EVENTS = "/api/v1/namespaces/default/events"
TAKEN = refusal(409, "AlreadyExists", "exists")


def record(client: KubeClient, message: str = "all slots are held") -> bool:
    return record_event(
        client, regarding=RESERVATION, reason="Available", message=message, reporting_component="op", clock=FakeClock()
    )


def event_path() -> str:
    name = build_event(RESERVATION, "Available", "all slots are held", "Normal", "op")["metadata"]["name"]
    return f"{EVENTS}/{name}"


def test_an_event_is_written_where_describe_looks_for_it(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", EVENTS, answer({}, 201))
    assert record(client)
    sent = server.seen[0].json
    assert sent["involvedObject"] == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Reservation",
        "namespace": "default",
        "name": "r1",
        "uid": "u1",
    }
    assert (sent["type"], sent["reason"], sent["message"]) == ("Normal", "Available", "all slots are held")
    assert sent["source"] == {"component": "op"}
    assert (sent["count"], sent["firstTimestamp"], sent["lastTimestamp"]) == (1, *["2026-11-21T12:00:00Z"] * 2)


def test_the_same_event_is_counted_up(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", EVENTS, TAKEN).on("GET", event_path(), answer({"count": 4}))
    server.on("PATCH", event_path(), answer({}))
    assert record(client)
    assert server.seen[-1].json == {"count": 5, "lastTimestamp": "2026-11-21T12:00:00Z"}


def test_events_that_differ_have_different_names() -> None:
    parts = ("Available", "held", "Normal", "op")
    others = [("Failed", *parts[1:]), ("Available", "lost", *parts[2:])]
    names = {build_event(RESERVATION, *one)["metadata"]["name"] for one in (parts, *others)}  # type: ignore[arg-type]
    assert len(names) == 3


def test_an_event_of_a_clusters_object_stands_in_the_default_namespace() -> None:
    event = build_event(PLAN, "Running", "began", "Normal", "descheduler")
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


def test_a_long_message_and_a_long_name_are_cut() -> None:
    long = ObjectReference(kind="Reservation", namespace="default", name="a" * 199 + "-b" * 27, uid="u")
    event = build_event(long, "Failed", "x" * 5_000, "Warning", "op")
    assert len(event["message"]) == 1024
    assert len(event["metadata"]["name"]) <= 253
    assert "-." not in event["metadata"]["name"]
    assert json.dumps(event)


FAULTS: dict[str, Reply] = {
    "the right to write events is missing": refusal(403, "Forbidden", "no"),
    "the server is down": Reset(),
    "the namespace is going away": refusal(403, "Forbidden", "being terminated"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_nothing_fails_because(fault: Reply, client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", EVENTS, fault)
    assert record(client) is False
