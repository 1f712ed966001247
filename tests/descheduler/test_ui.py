"""The page at `/ui`: who gets its files, what these may do, and what it asks for."""

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

import pytest

from berth_kube.resources import RESERVATIONS
from descheduler.rest_server import READER, ReviewingCluster, ask, populated, quick, serving

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


@pytest.mark.parametrize(("path", "right"), [("nodes", "list nodes"), ("reservations", "list reservations")])
def test_who_may_not_list_them_is_told_which_right_is_missing(url: str, path: str, right: str) -> None:
    answer = ask("GET", f"{url}/v1/{path}", token=READER)
    assert answer.status_code == 403
    assert right in answer.json()["detail"]
