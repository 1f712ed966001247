"""Drains that are asked for over HTTP: by whom, of which nodes, and what is said of those that take pods."""

from collections.abc import Iterator

import pytest

from berth_descheduler.capabilities.drain.api.paths import PATHS
from berth_descheduler.capabilities.drain.api.schemas import DrainRequest
from berth_kube.resources import MIGRATION_PLANS, NODES
from descheduler.fake_cluster import Raw
from descheduler.rest_server import ReviewingCluster, ask, populated, serving
from descheduler.test_rest_requests import problem


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster) as address:
        yield address


def cordon(cluster: ReviewingCluster, *names: str) -> None:
    for name in names:
        cluster.merge_patch(NODES, name, {"spec": {"unschedulable": True}})


@pytest.mark.parametrize(
    ("more", "mode"),
    [
        ({}, "Auto"),
        ({"mode": "Approve", "skipRefused": True}, "Approve"),
        ({"mode": "Auto", "dryRun": True, "deleteEmptyDirData": True}, "Plan"),
        ({"harmlessOwners": ["Etcd.example.com", "*"]}, "Auto"),
    ],
    ids=str,
)
def test_a_drain_is_asked_for_as_a_plan(url: str, cluster: ReviewingCluster, more: Raw, mode: str) -> None:
    cordon(cluster, "n0", "n1")
    answer = ask("POST", f"{url}/v1/drains", json={"nodes": ["n1", "n0"], **more})
    assert answer.status_code == 202
    asked = answer.json()
    assert answer.headers["Location"] == f"/v1/plans/{asked['plan']}"
    assert (asked["nodes"], asked["mode"], asked["phase"], asked["requestedBy"]) == (
        *(["n0", "n1"], mode),
        *("Requested", "admin"),
    )
    spec = cluster.objects[MIGRATION_PLANS.plural]["", asked["plan"]]["spec"]
    assert spec["objective"]["plugin"] == "NodeDrain"
    assert spec["objective"]["args"] == {
        "nodes": ["n0", "n1"],
        "deleteEmptyDirData": more.get("deleteEmptyDirData", False),
        "skipRefused": more.get("skipRefused", False),
        **({"harmlessOwners": sorted(more["harmlessOwners"])} if "harmlessOwners" in more else {}),
    }
    assert not spec.get("approved")
    assert not spec.get("policy")


@pytest.mark.parametrize("kind", ["Etcd", "etcd.example.com", "", "Etcd.", "Etcd.example.com\n", 1])
def test_a_kind_of_harmless_owners_has_its_group(url: str, cluster: ReviewingCluster, kind: object) -> None:
    cordon(cluster, "n0")
    body = {"nodes": ["n0"], "harmlessOwners": [kind]}
    refusal = problem(ask("POST", f"{url}/v1/drains", json=body), 422, "invalid-request")
    assert [fault["field"] for fault in refusal["errors"]] == ["body.harmlessOwners.0"]


def test_a_drain_names_the_nodes_that_still_take_pods_and_those_that_are_not_there(
    url: str, cluster: ReviewingCluster
) -> None:
    cordon(cluster, "n1")
    before = len(cluster.objects[MIGRATION_PLANS.plural])
    found = problem(ask("POST", f"{url}/v1/drains", json={"nodes": ["n0", "n1", "n2"]}), 409, "conflict")
    assert found["detail"] == "not cordoned: run kubectl cordon n0 n2"
    assert [one["field"] for one in found["errors"]] == ["body.nodes[0]", "body.nodes[2]"]
    gone = problem(ask("POST", f"{url}/v1/drains", json={"nodes": ["n1", "gone"]}), 404, "not-found")
    assert [one["field"] for one in gone["errors"]] == ["body.nodes[1]"]
    twice = problem(ask("POST", f"{url}/v1/drains", json={"nodes": ["n1", "n1"]}), 422, "invalid-request")
    assert [one["field"] for one in twice["errors"]] == ["body.nodes"]
    assert len(cluster.objects[MIGRATION_PLANS.plural]) == before
    assert ask("POST", f"{url}/v1/drains", json={"nodes": ["n0"], "dryRun": True}).status_code == 202


@pytest.mark.parametrize(
    ("rights", "mode", "lacking"),
    [
        ({("create", "migrationplans")}, "Plan", "patch nodes"),
        ({("patch", "nodes")}, "Plan", "create migrationplans"),
        ({("create", "migrationplans"), ("patch", "nodes")}, "Auto", "patch migrationplans"),
        ({("create", "migrationplans"), ("patch", "nodes")}, "Approve", ""),
        ({("create", "migrationplans"), ("patch", "nodes"), ("patch", "migrationplans")}, "Auto", ""),
    ],
    ids=["creates plans", "patches nodes", "patches no plans", "approves", "all of it"],
)
def test_who_drains_may_make_plans_and_cordon_nodes(
    url: str, cluster: ReviewingCluster, rights: set[tuple[str, str]], mode: str, lacking: str
) -> None:
    cordon(cluster, "n0")
    cluster.users["draining-token"] = "draining"
    cluster.rights["draining"] = rights
    answer = ask("POST", f"{url}/v1/drains", token="draining-token", json={"nodes": ["n0"], "mode": mode})
    if lacking:
        assert lacking in problem(answer, 403, "forbidden")["detail"]
    else:
        assert answer.status_code == 202


def test_the_same_key_is_the_same_drain(url: str, cluster: ReviewingCluster) -> None:
    cordon(cluster, "n0", "n1")
    key = {"Idempotency-Key": "rack-7"}
    first, again = (ask("POST", f"{url}/v1/drains", json={"nodes": ["n0"]}, headers=key) for _ in range(2))
    assert first.headers["Location"] == again.headers["Location"]
    problem(ask("POST", f"{url}/v1/drains", json={"nodes": ["n1"]}, headers=key), 409, "conflict")
    problem(ask("POST", f"{url}/v1/runs", json={"policy": "nightly"}, headers=key), 409, "conflict")


def test_the_example_of_a_request_is_taken() -> None:
    assert DrainRequest.model_validate(PATHS.examples["ask_for_drain"]["body"]).nodes == ["node-4"]
