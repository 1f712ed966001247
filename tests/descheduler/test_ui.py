"""The page at `/ui`: who gets its files, what these may do, and what it asks for."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import pytest

from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.planner import CapacityReport, report_capacity
from berth_kube.errors import NotFoundError
from berth_kube.resources import RESERVATION_WINDOWS, RESERVATIONS
from builders import node, pod
from descheduler.fake_cluster import call, failure
from descheduler.rest_server import READER, ReviewingCluster, ask, populated, quick, serving
from window_simulation import window_body

FILES = {"/ui": "text/html", "/ui/page.css": "text/css", "/ui/page.js": "text/javascript"}


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster, replace(quick(), ui=True)) as address:
        yield address


def test_the_page_is_served_only_where_it_is_switched_on(cluster: ReviewingCluster) -> None:
    with serving(cluster) as url:
        assert [ask("GET", f"{url}{path}", token=None).status_code for path in FILES] == [404, 404, 404]


def test_the_page_needs_no_token_and_lets_in_nothing_from_elsewhere(url: str, cluster: ReviewingCluster) -> None:
    for path, media_type in FILES.items():
        answer = ask("GET", f"{url}{path}", token=None)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].partition(";")[0] == media_type
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} <= {*policy}
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert cluster.calls == []


def test_the_page_has_no_script_or_style_in_it_and_names_no_other_host() -> None:
    folder = files("berth_descheduler.ui") / "static"
    page, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page)
    assert not re.search(r"https?://", page + style + script)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|localStorage|cookie", script)


def test_nodes_come_by_name_with_their_use(url: str) -> None:
    answer = ask("GET", f"{url}/v1/nodes").json()
    assert (answer["pods"], answer["pendingPods"], answer["emptyNodes"], answer["heldPlaces"]) == (3, 0, 0, 0)
    assert [(node["name"], node["pods"], node["requestedRatio"]["cpu"]) for node in answer["items"]] == [
        ("n0", 1, 0.25),
        ("n1", 1, 0.25),
        ("n2", 1, 0.25),
    ]


def test_what_is_held_says_for_whom_and_until_when_and_leaves_out_what_is_over(
    url: str, cluster: ReviewingCluster
) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "shop", "name": "night"}
    template = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"tasks": [{"name": "main", "replicas": 2, "template": template}], "owners": [{"object": job}]}
    held = {"task": "main", "index": 0, "state": "Held", "node": "n1"}
    for name, phase, expires in (
        ("later", "Available", "2026-11-20T14:00:00Z"),
        ("sooner", "Available", "2026-11-20T13:00:00Z"),
        ("over", "Failed", "2026-11-20T12:00:00Z"),
        ("endless", "Pending", None),
    ):
        status = {"state": {"phase": phase}, "slots": [held], "held": {"cpu": "1"}, "expiresAt": expires}
        cluster.add(RESERVATIONS, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": status})
    items = ask("GET", f"{url}/v1/reservations").json()["items"]
    assert [(item["name"], item["expiresAt"]) for item in items] == [
        ("sooner", "2026-11-20T13:00:00Z"),
        ("later", "2026-11-20T14:00:00Z"),
        ("endless", None),
    ]
    assert items[0]["owners"] == [{"kind": "Job", "name": "night", "apiVersion": "batch/v1", "namespace": "shop"}]
    assert (items[0]["heldPlaces"], items[0]["places"], items[0]["nodes"]) == (1, 2, ["n1"])
    assert (items[0]["resources"], items[0]["plan"]) == ({"cpu": "1"}, "")


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("nodes", "list nodes"),
        ("reservations", "list reservations"),
        ("calendar", "list reservationwindows"),
    ],
)
def test_who_may_not_list_them_is_told_which_right_is_missing(url: str, path: str, right: str) -> None:
    answer = ask("GET", f"{url}/v1/{path}", token=READER)
    assert answer.status_code == 403
    assert right in answer.json()["detail"]


def test_the_calendar_has_the_changes_of_the_next_day_and_names_what_never_opens(
    url: str, cluster: ReviewingCluster
) -> None:
    cluster.add(RESERVATION_WINDOWS, window_body("nightly"))
    cluster.add(RESERVATION_WINDOWS, window_body("bad", timeZone="Europe/Nowhere"))
    answer = ask("GET", f"{url}/v1/calendar").json()
    assert {(entry["window"], entry["what"]) for entry in answer["items"]} == {
        ("batch/nightly", change) for change in ("reserves", "opens", "closes")
    }
    assert answer["items"] == sorted(answer["items"], key=lambda entry: entry["time"])
    assert [problem["window"] for problem in answer["problems"]] == ["batch/bad"]


def test_without_the_kind_the_calendar_is_empty(url: str, cluster: ReviewingCluster) -> None:
    cluster.faults["list reservationwindows"] = [NotFoundError(call("list", RESERVATION_WINDOWS, ""), failure(404))]
    answer = ask("GET", f"{url}/v1/calendar")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def spread(*cpu: str) -> CapacityReport:
    """Return how fragmented nodes of 4 cpu are with a pod each, beside a pod of 2 cpu."""
    nodes = tuple(node(f"n{index}", cpu="4", memory="16Gi") for index in range(len(cpu)))
    pods = tuple(pod(f"web-{index}", node=f"n{index}", cpu=amount) for index, amount in enumerate(cpu))
    return report_capacity(Snapshot(nodes=nodes, pods=pods))


def test_what_was_measured_since_the_start_is_kept_in_order_and_the_oldest_forgotten(cluster: ReviewingCluster) -> None:
    history, began = CapacityHistory(), datetime(2026, 11, 20, tzinfo=UTC)
    for minutes in range(300):
        history.keep(
            spread("3", "3", "1") if minutes < 299 else spread("3", "3", "2"), began + timedelta(minutes=minutes)
        )
    with serving(cluster, replace(quick(), prometheus_url="https://metrics.example/berth"), history=history) as url:
        answer = ask("GET", f"{url}/v1/fragmentation/history").json()
        refused = ask("GET", f"{url}/v1/fragmentation/history", token=READER)
    assert answer["prometheus"] == "https://metrics.example/berth"
    assert [item["measuredAt"] for item in answer["items"]][:: len(answer["items"]) - 1] == [
        "2026-11-20T00:12:00Z",
        "2026-11-20T04:59:00Z",
    ]
    first, last = answer["items"][0], answer["items"][-1]
    assert (first["nodes"], first["emptyNodes"]) == (3, 0)
    (cpu,) = (resource for resource in first["resources"] if resource["resource"] == "cpu")
    assert cpu["requestedRatio"] == round(7 / 12, 4)
    assert cpu["fragmentedRatio"] > 0
    assert last["resources"] != first["resources"]
    assert (refused.status_code, "list nodes" in refused.json()["detail"]) == (403, True)


def test_an_address_of_prometheus_that_a_browser_would_not_open_as_a_page_is_refused() -> None:
    with pytest.raises(InputError, match="--rest-prometheus-url"):
        replace(quick(), prometheus_url="javascript:alert(1)")
