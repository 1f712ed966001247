"""What the HTTP interface answers: to those who may and those who may not, to what is right and to what is not."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from berth_core.clock import SystemClock
from berth_core.errors import BerthError
from berth_descheduler.api.reads import FragmentationQueries
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.planner import read_shape
from berth_descheduler.telemetry import KEY_REQUEST
from berth_kube.errors import ForbiddenError, KubeError, ServerError
from berth_kube.resources import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NODES,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
)
from descheduler.fake_cluster import Raw, call, failure
from descheduler.rest_server import (
    ADMIN,
    NOBODY,
    READER,
    ReviewingCluster,
    add_plan,
    add_policy,
    ask,
    hurried,
    populated,
    quick,
    serving,
)
from waiting import soon

BODIES = {
    "/v1/runs": {"policy": "nightly"},
    "/v1/drains": {"nodes": ["n0"]},
    "/v1/plans/plan-waiting/approve": {"uid": "uid-migrationplans-plan-waiting"},
}
EVERY_PATH = (
    ("POST", "/v1/runs"),
    ("POST", "/v1/drains"),
    ("GET", "/v1/plans"),
    ("GET", "/v1/plans/plan-done"),
    ("GET", "/v1/plans/plan-done/events"),
    ("POST", "/v1/plans/plan-waiting/approve"),
    ("POST", "/v1/plans/plan-waiting/abort"),
    ("GET", "/v1/fragmentation"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/reservations"),
    ("GET", "/v1/calendar"),
    ("GET", "/v1/findings"),
    ("GET", "/v1/policies"),
)


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster) as address:
        yield address


@pytest.fixture(scope="module")
def calm() -> Iterator[str]:
    """The address of an interface that cases share which change nothing."""
    with serving(populated()) as address:
        yield address


def problem(answer: requests.Response, status: int, kind: str) -> Raw:
    """Return the problem that an answer is, after checking that it is a whole one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    found: Raw = answer.json()
    assert found["status"] == status
    assert found["type"] == f"urn:berth:problem:{kind}"
    assert found["title"]
    assert found["detail"]
    assert found["instance"] == f"urn:uuid:{answer.headers['X-Request-Id']}"
    return found


def body_for(path: str) -> dict[str, Any]:
    return {"json": BODIES[path]} if path in BODIES else {}


# --- who asks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": ADMIN},
        {"Authorization": f"Bearer {ADMIN} {ADMIN}"},
        {"Authorization": f"Bearer {NOBODY}"},
        {"Authorization": f"Bearer {ADMIN}%00"},
        {"Cookie": f"token={ADMIN}"},
    ],
    ids=str,
)
def test_who_shows_no_good_token_is_not_let_in(url: str, cluster: ReviewingCluster, headers: dict[str, str]) -> None:
    for method, path in EVERY_PATH:
        answer = ask(method, f"{url}{path}", token=None, headers=headers, **body_for(path))
        found = problem(answer, 401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        assert NOBODY not in json.dumps(found)
    assert {call.plural for call in cluster.calls} <= {TOKEN_REVIEWS.plural}


def test_a_token_in_the_query_is_none(calm: str) -> None:
    problem(ask("GET", f"{calm}/v1/plans?access_token={ADMIN}", token=None), 401, "unauthenticated")


@pytest.mark.parametrize(("method", "path"), EVERY_PATH)
def test_who_has_no_right_to_the_objects_behind_a_path_is_refused(
    url: str, cluster: ReviewingCluster, method: str, path: str
) -> None:
    cluster.users["poor-token"] = "poor"
    found = problem(ask(method, f"{url}{path}", token="poor-token", **body_for(path)), 403, "forbidden")
    assert "poor has no right to" in found["detail"]
    assert {call.plural for call in cluster.calls} == {TOKEN_REVIEWS.plural, SUBJECT_ACCESS_REVIEWS.plural}


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("POST", "/v1/runs", ("create", MIGRATION_PLANS.plural)),
        ("GET", "/v1/plans", ("list", MIGRATION_PLANS.plural)),
        ("GET", "/v1/plans/plan-done", ("get", MIGRATION_PLANS.plural)),
        ("GET", "/v1/plans/plan-done/events", ("watch", MIGRATION_PLANS.plural)),
        ("POST", "/v1/plans/plan-waiting/approve", ("patch", MIGRATION_PLANS.plural)),
        ("POST", "/v1/plans/plan-waiting/abort", ("patch", MIGRATION_PLANS.plural)),
        ("GET", "/v1/policies", ("list", DESCHEDULER_POLICIES.plural)),
    ],
)
def test_the_right_that_a_path_needs_is_enough(
    url: str, cluster: ReviewingCluster, method: str, path: str, needed: tuple[str, str]
) -> None:
    cluster.users["modest-token"] = "modest"
    cluster.rights["modest"] = {needed}
    assert ask(method, f"{url}{path}", token="modest-token", **body_for(path)).ok


def test_fragmentation_needs_the_right_to_pods_as_well(url: str, cluster: ReviewingCluster) -> None:
    cluster.users["half-token"] = "half"
    cluster.rights["half"] = {("list", NODES.plural)}
    found = problem(ask("GET", f"{url}/v1/fragmentation", token="half-token"), 403, "forbidden")
    assert "list pods" in found["detail"]


@pytest.mark.parametrize("resource", [TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS], ids=lambda one: one.plural)
@pytest.mark.parametrize("error", [ServerError, ForbiddenError], ids=lambda one: one.__name__)
def test_while_the_cluster_does_not_say_who_may_nobody_may(
    url: str, cluster: ReviewingCluster, resource: Resource, error: type[KubeError]
) -> None:
    broken = error(call("create", resource, ""), failure(500, f"spec.token: {ADMIN}"))
    cluster.faults[f"create {resource.plural}"] = [broken]
    answer = ask("GET", f"{url}/v1/plans")
    found = problem(answer, 503, "cluster-unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert ADMIN not in json.dumps(found)
    assert ask("GET", f"{url}/v1/plans").ok


def test_the_cluster_is_not_asked_again_for_a_while(cluster: ReviewingCluster) -> None:
    with serving(cluster, hurried(quick(), identity_seconds=600, rejected_seconds=600)) as url:
        for _ in range(5):
            assert ask("GET", f"{url}/v1/plans").ok
            assert ask("GET", f"{url}/v1/plans", token=NOBODY).status_code == 401
    assert cluster.reviews() == 2
    assert sum(call.plural == SUBJECT_ACCESS_REVIEWS.plural for call in cluster.calls) == 1


def test_a_right_that_is_taken_away_is_gone_after_a_while(cluster: ReviewingCluster) -> None:
    with serving(cluster, hurried(quick(), identity_seconds=0.1)) as url:
        assert ask("GET", f"{url}/v1/plans", token=READER).ok
        cluster.rights["reader"].clear()
        soon("it is refused", lambda: ask("GET", f"{url}/v1/plans", token=READER).status_code == 403)
        del cluster.users[READER]
        soon("it is not known", lambda: ask("GET", f"{url}/v1/plans", token=READER).status_code == 401)


@pytest.mark.parametrize(("answered", "want"), [(["berth", "other"], 200), (["other"], 401), (None, 401)], ids=str)
def test_with_an_audience_a_token_must_be_made_for_it(
    cluster: ReviewingCluster, answered: list[str] | None, want: int
) -> None:
    cluster.audiences = answered
    settings = RestSettings(audiences=("berth",), limits=quick().limits, times=quick().times)
    with serving(cluster, settings) as url:
        assert ask("GET", f"{url}/v1/plans").status_code == want


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_body", "mode"),
    {
        '{"policy": "nightly"}': "Approve",
        '{"policy": "nightly", "mode": null}': "Approve",
        '{"policy": "nightly", "mode": "Plan"}': "Plan",
        '{"policy": "nightly", "mode": "Auto"}': "Auto",
        '{"policy": "nightly", "mode": "Auto", "dryRun": true}': "Plan",
        '{"policy": "nightly", "dryRun": true}': "Plan",
    }.items(),
)
def test_a_run_is_asked_for_as_a_plan(url: str, cluster: ReviewingCluster, request_body: str, mode: str) -> None:
    answer = ask("POST", f"{url}/v1/runs", data=request_body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202
    asked = answer.json()
    assert answer.headers["Location"] == f"/v1/plans/{asked['plan']}"
    assert (asked["policy"], asked["mode"], asked["phase"], asked["requestedBy"]) == (
        *("nightly", mode),
        *("Requested", "admin"),
    )
    spec = cluster.objects[MIGRATION_PLANS.plural]["", asked["plan"]]["spec"]
    assert (spec["policy"], spec["mode"], spec["requestedBy"]) == ("nightly", mode, "admin")
    assert not spec.get("approved")
    assert ask("GET", f"{url}{answer.headers['Location']}").json()["phase"] == "Requested"


@pytest.mark.parametrize("policy_mode", ["Plan", "Auto"])
def test_to_have_a_plan_carried_out_unseen_needs_the_right_to_approve(
    url: str, cluster: ReviewingCluster, policy_mode: str
) -> None:
    add_policy(cluster, "other", mode=policy_mode)
    cluster.users["asking-token"] = "asking"
    cluster.rights["asking"] = {("create", MIGRATION_PLANS.plural)}
    body = {"policy": "other"} | ({"mode": "Auto"} if policy_mode == "Plan" else {})
    found = problem(ask("POST", f"{url}/v1/runs", token="asking-token", json=body), 403, "forbidden")
    assert "patch migrationplans" in found["detail"]
    assert ask("POST", f"{url}/v1/runs", token="asking-token", json={**body, "mode": "Approve"}).status_code == 202


def test_a_policy_that_is_not_there_or_not_valid_is_not_run(url: str, cluster: ReviewingCluster) -> None:
    before = len(cluster.objects[MIGRATION_PLANS.plural])
    gone = problem(ask("POST", f"{url}/v1/runs", json={"policy": "gone"}), 404, "not-found")
    expected = "the name of a policy that exists"
    assert gone["errors"] == [{"field": "body.policy", "value": '"gone"', "expected": expected}]
    broken = problem(ask("POST", f"{url}/v1/runs", json={"policy": "broken"}), 409, "conflict")
    assert "strategy is 'Best'; expected Threshold" in broken["detail"]
    assert len(cluster.objects[MIGRATION_PLANS.plural]) == before


# --- the same again ---------------------------------------------------------------------------------------------------


def test_asking_again_with_the_same_key_is_asking_once(url: str, cluster: ReviewingCluster) -> None:
    before = len(cluster.objects[MIGRATION_PLANS.plural])
    key = {"Idempotency-Key": "build-17"}
    first = ask("POST", f"{url}/v1/runs", json={"policy": "nightly"}, headers=key)
    again = ask("POST", f"{url}/v1/runs", json={"policy": "nightly"}, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.headers["Location"] == again.headers["Location"]
    assert len(cluster.objects[MIGRATION_PLANS.plural]) == before + 1


def test_many_who_ask_at_once_with_the_same_key_get_the_same_plan(cluster: ReviewingCluster) -> None:
    cluster.delay("create", MIGRATION_PLANS, seconds=0.02)
    with serving(cluster, quick(requests_per_caller=32)) as one, serving(cluster, quick()) as other:
        answers = _at_once(
            8,
            lambda index: ask(
                "POST",
                f"{one if index % 2 else other}/v1/runs",
                json={"policy": "nightly"},
                headers={"Idempotency-Key": "build-18"},
            ),
        )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.headers["Location"] for answer in answers}) == 1


@pytest.mark.parametrize(
    "other",
    [{"policy": "weekly"}, {"policy": "nightly", "mode": "Plan"}, {"policy": "nightly", "dryRun": True}],
    ids=str,
)
def test_another_request_under_the_same_key_is_a_conflict(url: str, cluster: ReviewingCluster, other: Raw) -> None:
    add_policy(cluster, "weekly")
    key = {"Idempotency-Key": "build-19"}
    assert ask("POST", f"{url}/v1/runs", json={"policy": "nightly", "mode": "Approve"}, headers=key).ok
    problem(ask("POST", f"{url}/v1/runs", json=other, headers=key), 409, "conflict")


def test_the_key_of_one_caller_is_not_anothers(url: str, cluster: ReviewingCluster) -> None:
    cluster.rights["reader"].add(("create", MIGRATION_PLANS.plural))
    asked = [
        ask("POST", f"{url}/v1/runs", token=one, json={"policy": "nightly"}, headers={"Idempotency-Key": "k"})
        for one in (ADMIN, READER)
    ]
    assert [answer.status_code for answer in asked] == [202, 202]
    assert asked[0].headers["Location"] != asked[1].headers["Location"]


@pytest.mark.parametrize("key", ["", "x" * 201, "with space", "ümlaut".encode().decode("latin-1")])
def test_a_key_that_is_none_is_refused(calm: str, key: str) -> None:
    answer = ask("POST", f"{calm}/v1/runs", json={"policy": "nightly"}, headers={"Idempotency-Key": key})
    (error,) = problem(answer, 422, "invalid-request")["errors"]
    assert error["field"].lower() == "header.idempotency-key"


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    {
        "no policy": ("{}", "body.policy", "a value"),
        "an unknown field": ('{"policy": "nightly", "dry": true}', "body.dry", "left out"),
        "an unknown mode": ('{"policy": "nightly", "mode": "Now"}', "body.mode", "Plan, Approve or Auto"),
        "a switch as text": ('{"policy": "nightly", "dryRun": "yes"}', "body.dryRun", "true or false"),
        "a switch as number": ('{"policy": "nightly", "dryRun": 1}', "body.dryRun", "true or false"),
        "a name as number": ('{"policy": 1}', "body.policy", "text"),
        "a name that none can be": ('{"policy": "../x"}', "body.policy", "pattern"),
        "a name that is too long": (json.dumps({"policy": "x" * 254}), "body.policy", "253"),
        "half a character": ('{"policy": "\\ud800"}', "body.policy", ""),
        "a list": ("[]", "body", "object"),
        "nothing": ("null", "body", ""),
        "no body": ("", "body", "a value"),
    }.values(),
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_what_is_wrong_in_a_body_is_named(calm: str, body: str, field: str, expected: str) -> None:
    answer = ask("POST", f"{calm}/v1/runs", data=body, headers={"Content-Type": "application/json"})
    errors = problem(answer, 422, "invalid-request")["errors"]
    assert [(one["field"], expected in one["expected"]) for one in errors] == [(field, True)], errors


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("/v1/plans?limit=0", "query.limit"),
        ("/v1/plans?limit=501", "query.limit"),
        ("/v1/plans?limit=many", "query.limit"),
        ("/v1/plans?phase=Perhaps", "query.phase"),
        ("/v1/plans?policy=-", "query.policy"),
        ("/v1/plans?polic=nightly", "query.polic"),
        ("/v1/plans/plan-done?full", "query.full"),
        ("/v1/plans/Plan_1", "path.name"),
        ("/v1/fragmentation?shape=cpu", "query.shape[0]"),
        ("/v1/fragmentation?shape=cpu=4&shape=memory=0", "query.shape[1]"),
        ("/v1/fragmentation?shape=cpu=-1", "query.shape[0]"),
        ("/v1/fragmentation?shape=cpu=1,cpu=2", "query.shape[0]"),
        ("/v1/fragmentation?shape=pods=3", "query.shape[0]"),
        ("/v1/fragmentation?shape=cpu=1,count=3", "query.shape[0]"),
        ("/v1/fragmentation?shape=", "query.shape[0]"),
        ("/v1/fragmentation?" + "&".join(["shape=cpu=1"] * 9), "query.shape"),
    ],
)
def test_what_is_wrong_in_an_address_is_named(calm: str, query: str, field: str) -> None:
    (error,) = problem(ask("GET", f"{calm}{query}"), 422, "invalid-request")["errors"]
    assert error["field"] == field
    assert error["expected"]


NO_JSON = ("{", '{"policy": "nightly"', "\x00", "{'policy': 'nightly'}", b"\xff\xfe{}", "[" * 5_000, '{"a":' * 1_100)


@pytest.mark.parametrize("body", NO_JSON, ids=range(len(NO_JSON)))
def test_a_body_that_is_no_json_is_told_so(calm: str, body: str | bytes) -> None:
    answer = ask("POST", f"{calm}/v1/runs", data=body, headers={"Content-Type": "application/json"})
    problem(answer, 400, "malformed-request")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_of_another_type_is_not_read(calm: str, kind: str) -> None:
    answer = ask(
        "POST", f"{calm}/v1/runs", data=b'{"policy": "nightly"}', headers={"Content-Type": kind} if kind else {}
    )
    (error,) = problem(answer, 415, "unsupported-media-type")["errors"]
    assert error == {
        "field": "header.Content-Type",
        "value": f'"{kind}"' if kind else "",
        "expected": "application/json",
    }


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/runs", "POST"),
        ("DELETE", "/v1/plans/plan-done", "GET"),
        ("HEAD", "/v1/plans", "GET"),
        ("PUT", "/v1/plans/plan-done/approve", "POST"),
        ("BREW", "/v1/policies", "GET"),
        ("POST", "/docs", "GET"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_told_those_it_takes(
    calm: str, method: str, path: str, allow: str
) -> None:
    answer = ask(method, f"{calm}{path}")
    assert answer.headers["Allow"] == allow
    if method != "HEAD":
        problem(answer, 405, "method-not-allowed")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/plans/", "/v1/plan", "/v2/plans", "/docs/", "/%2e%2e/etc"])
def test_a_path_that_is_none_is_told_so(calm: str, path: str) -> None:
    problem(ask("GET", f"{calm}{path}"), 404, "not-found")


ANY_VERSION = {"If-Match": '"1"'}


@pytest.mark.parametrize(
    ("method", "suffix"), [("GET", ""), ("GET", "/events"), ("POST", "/approve"), ("POST", "/abort")]
)
def test_a_plan_that_is_none_is_named(calm: str, method: str, suffix: str) -> None:
    refusal = problem(ask(method, f"{calm}/v1/plans/plan-gone{suffix}", headers=ANY_VERSION), 404, "not-found")
    expected = "the name of a plan that exists"
    assert refusal["errors"] == [{"field": "path.name", "value": '"plan-gone"', "expected": expected}]


# --- plans, policies, fragmentation -----------------------------------------------------------------------------------


def test_a_plan_is_approved_and_aborted_as_often_as_asked(url: str, cluster: ReviewingCluster) -> None:
    tag = ask("GET", f"{url}/v1/plans/plan-waiting").headers["ETag"]
    for _ in range(2):
        answer = ask("POST", f"{url}/v1/plans/plan-waiting/approve", headers={"If-Match": tag})
        assert (answer.status_code, answer.json()["approved"], answer.json()["approvedBy"]) == (202, True, "admin")
    for _ in range(2):
        answer = ask("POST", f"{url}/v1/plans/plan-waiting/abort")
        assert (answer.status_code, answer.json()["aborted"], answer.json()["abortedBy"]) == (202, True, "admin")
    spec = cluster.objects[MIGRATION_PLANS.plural]["", "plan-waiting"]["spec"]
    assert (spec["approved"], spec["aborted"]) == (True, True)


@pytest.mark.parametrize(
    ("plan", "verb", "said"),
    [
        ("plan-done", "approve", "it is Succeeded"),
        ("plan-done", "abort", "it is Succeeded"),
        ("plan-shown", "approve", "only shown"),
        ("plan-asked", "approve", "no moves yet"),
    ],
)
def test_what_cannot_be_asked_of_a_plan_any_more_or_yet_is_a_conflict(
    url: str, cluster: ReviewingCluster, plan: str, verb: str, said: str
) -> None:
    add_plan(cluster, "plan-shown", mode="Plan")
    add_plan(cluster, "plan-asked", phase="Requested")
    tag = ask("GET", f"{url}/v1/plans/{plan}").headers["ETag"]
    answer = ask("POST", f"{url}/v1/plans/{plan}/{verb}", headers={"If-Match": tag})
    assert said in problem(answer, 409, "conflict")["detail"]


# --- an approval is of the plan that was looked at --------------------------------------------------------------------

APPROVE = "/v1/plans/plan-waiting/approve"


def test_an_approval_that_does_not_say_which_plan_was_looked_at_is_refused(url: str, cluster: ReviewingCluster) -> None:
    bodies: tuple[dict[str, Any], ...] = ({}, {"json": {}}, {"json": {"version": "", "uid": ""}})
    for body in bodies:
        refusal = problem(ask("POST", f"{url}{APPROVE}", **body), 428, "precondition-required")
        assert "GET /v1/plans/plan-waiting" in refusal["detail"]
    assert "approved" not in cluster.objects[MIGRATION_PLANS.plural]["", "plan-waiting"]["spec"]


def naming(plan: dict[str, Any], how: str) -> dict[str, Any]:
    """Return what a request names a plan by, as who looked at it has it."""
    ways: dict[str, dict[str, Any]] = {
        "the ETag": {"headers": {"If-Match": f'"{plan["version"]}"'}},
        "a weak ETag": {"headers": {"If-Match": f'W/"{plan["version"]}"'}},
        "the version as a header": {"headers": {"If-Match": plan["version"]}},
        "the version": {"json": {"version": plan["version"]}},
        "the uid": {"json": {"uid": plan["uid"]}},
        "both": {"json": {"uid": plan["uid"], "version": plan["version"]}},
    }
    return ways[how]


WAYS = ("the ETag", "a weak ETag", "the version as a header", "the version", "the uid", "both")


@pytest.mark.parametrize("how", WAYS)
def test_the_plan_that_was_looked_at_is_approved_and_no_other_one_under_its_name(
    url: str, cluster: ReviewingCluster, how: str
) -> None:
    first = ask("GET", f"{url}/v1/plans/plan-waiting").json()
    cluster.delete(MIGRATION_PLANS, "plan-waiting")
    add_plan(cluster, "plan-waiting", states=("Pending", "Pending", "Pending"))
    cluster.objects[MIGRATION_PLANS.plural]["", "plan-waiting"]["metadata"]["uid"] = "another"

    refusal = problem(ask("POST", f"{url}{APPROVE}", **naming(first, how)), 409, "conflict")

    assert "is not the one that was looked at: it was made anew" in refusal["detail"]
    assert "shop/web-2 from n1 to n2" in refusal["detail"]
    faults = {fault["field"]: fault for fault in refusal["errors"]}
    assert faults["plan.uid"] == {"field": "plan.uid", "value": first["uid"], "expected": "another"}
    assert "shop/web-2" in faults["plan.moves"]["expected"]
    assert "approved" not in cluster.objects[MIGRATION_PLANS.plural]["", "plan-waiting"]["spec"]
    second = ask("GET", f"{url}/v1/plans/plan-waiting").json()
    assert ask("POST", f"{url}{APPROVE}", **naming(second, how)).status_code == 202


@pytest.mark.parametrize(
    ("tag", "body", "field"),
    [
        ("*", None, "header.If-Match"),
        ('"1", "2"', None, "header.If-Match"),
        (None, {"version": 7}, "body.version"),
        (None, {"resourceVersion": "7"}, "body.resourceVersion"),
    ],
)
def test_what_names_no_single_plan_is_wrong(url: str, tag: str | None, body: dict[str, Any] | None, field: str) -> None:
    rest: dict[str, Any] = {"headers": {"If-Match": tag} if tag else {}, **({"json": body} if body else {})}
    refusal = problem(ask("POST", f"{url}{APPROVE}", **rest), 422, "invalid-request")
    assert [fault["field"] for fault in refusal["errors"]] == [field]


def test_a_header_and_a_body_that_name_two_versions_are_a_conflict(url: str) -> None:
    answer = ask("POST", f"{url}{APPROVE}", headers={"If-Match": '"1"'}, json={"version": "2"})
    assert "name two versions, 1 and 2" in problem(answer, 409, "conflict")["detail"]


def test_plans_are_listed_newest_first_and_chosen(url: str, cluster: ReviewingCluster) -> None:
    for index in range(5):
        made = f"2026-11-20T0{index}:00:00Z"
        plan = add_plan(cluster, f"plan-{index}", phase="Failed")
        cluster.add(MIGRATION_PLANS, {**plan, "metadata": {**plan["metadata"], "creationTimestamp": made}})
    found = ask("GET", f"{url}/v1/plans?phase=Failed&policy=nightly&limit=3").json()
    assert [one["name"] for one in found["items"]] == ["plan-4", "plan-3", "plan-2"]
    assert found["remaining"] == 2
    assert ask("GET", f"{url}/v1/plans?policy=weekly").json() == {"items": [], "remaining": 0, "continue": ""}


def test_a_plan_is_shown_with_what_became_of_its_moves(calm: str) -> None:
    found = ask("GET", f"{calm}/v1/plans/plan-done").json()
    assert [(move["pod"], move["source"], move["target"], move["state"]) for move in found["moves"]] == [
        ("web-0", "n1", "n2", "Landed"),
        ("web-1", "n1", "n2", "Landed"),
    ]
    assert (found["phase"], found["plannedMoves"]) == ("Succeeded", 2)
    assert found["objective"] == {"plugin": "Defragmentation", "strategy": "Threshold", "args": {}}


def test_policies_say_whether_they_are_valid(calm: str) -> None:
    items = ask("GET", f"{calm}/v1/policies").json()["items"]
    assert [(one["name"], one["valid"], bool(one["invalidBecause"])) for one in items] == [
        ("broken", False, True),
        ("nightly", True, False),
    ]


def test_fragmentation_counts_what_still_fits(calm: str) -> None:
    found = ask("GET", f"{calm}/v1/fragmentation?shape=cpu=2,memory=8Gi&shape=memory=15Gi").json()
    assert [(one["shape"], one["fits"]) for one in found["shapes"]] == [("cpu=2,memory=8Gi", 3), ("memory=15Gi", 3)]
    assert (found["nodes"], found["emptyNodes"], found["pods"]) == (3, 0, 3)
    (cpu,) = [one for one in found["resources"] if one["resource"] == "cpu"]
    assert (cpu["requestedRatio"], cpu["largestFree"]) == (0.25, "3")


def test_the_cluster_is_read_once_however_many_ask_how_fragmented_it_is(cluster: ReviewingCluster) -> None:
    cluster.delay("list", NODES, seconds=0.1)
    settings = hurried(quick(requests_per_caller=32), capacity_seconds=600)
    with serving(cluster, settings) as url:
        answers = _at_once(12, lambda index: ask("GET", f"{url}/v1/fragmentation?shape=cpu={index + 1}"))
    assert {answer.status_code for answer in answers} == {200}
    assert cluster.calls.count(f"list {NODES.plural} ") == 1


def test_however_many_shapes_are_counted_what_capabilities_read_is_kept(cluster: ReviewingCluster) -> None:
    reads: list[str] = []

    async def answer_all() -> None:
        queries = FragmentationQueries(cluster, SystemClock(), hurried(quick(), capacity_seconds=600))  # type: ignore[arg-type]
        await queries.read(("calendar",), lambda: reads.append("first") or "the calendar")
        for cores in range(1, 70):
            await queries.fragmentation((read_shape(f"cpu={cores}"),))
        await queries.read(("calendar",), lambda: reads.append("second") or "the calendar")
        queries.close()

    asyncio.run(answer_all())
    assert reads == ["first"]


def test_an_old_measurement_is_taken_anew(cluster: ReviewingCluster) -> None:
    with serving(cluster, hurried(quick(), capacity_seconds=0.1)) as url:
        assert ask("GET", f"{url}/v1/fragmentation").json()["nodes"] == 3
        cluster.remove(NODES, cluster.objects[NODES.plural]["", "n0"])
        soon("the node is gone", lambda: ask("GET", f"{url}/v1/fragmentation").json()["nodes"] == 2)


# --- when something fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(ServerError, 503, "cluster-unavailable"), (ForbiddenError, 502, "cluster-refused")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_cluster_that_fails_or_refuses_is_told_as_such(
    url: str, cluster: ReviewingCluster, error: type[BerthError], status: int, kind: str
) -> None:
    cluster.faults[f"list {MIGRATION_PLANS.plural}"] = [error(call("list", MIGRATION_PLANS, ""), failure(status))]
    problem(ask("GET", f"{url}/v1/plans"), status, kind)


def test_a_fault_of_the_service_is_told_without_its_inside(url: str, cluster: ReviewingCluster) -> None:
    cluster.faults[f"list {MIGRATION_PLANS.plural}"] = [RuntimeError("inside")]
    with structlog.testing.capture_logs() as logs:
        found = problem(ask("GET", f"{url}/v1/plans"), 500, "internal-error")
        soon("it is logged", lambda: [line for line in list(logs) if line["log_level"] == "error"])
    assert "inside" not in json.dumps(found)
    (told,) = [line for line in logs if line["log_level"] == "error"]
    assert f"urn:uuid:{told['request']}" == found["instance"]
    assert ask("GET", f"{url}/v1/plans").ok


def test_a_cluster_that_is_too_slow_is_not_waited_for(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay("list", MIGRATION_PLANS, until=release)
    with serving(cluster, hurried(quick(), call_seconds=1)) as url:
        problem(ask("GET", f"{url}/v1/plans"), 504, "timed-out")
        assert ask("GET", f"{url}/v1/policies").ok
        release.set()


def test_a_request_has_an_end_whatever_it_waits_for(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay("list", MIGRATION_PLANS, until=release)
    with serving(cluster, hurried(quick(), request_seconds=0.3)) as url:
        problem(ask("GET", f"{url}/v1/plans"), 504, "timed-out")
        release.set()


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_request_leaves_one_line_without_anything_secret(url: str) -> None:
    with structlog.testing.capture_logs() as logs:
        answers = [
            ask("GET", f"{url}/v1/plans?policy=nightly", headers={"Cookie": "secret-cookie"}),
            ask("GET", f"{url}/v1/plans?token={ADMIN}", token=NOBODY),
        ]
        ids = [one.headers["X-Request-Id"] for one in answers]
        soon("both are told", lambda: set(ids) <= {line.get(KEY_REQUEST) for line in list(logs)})
    lines = [line for line in logs if line.get(KEY_REQUEST) in ids]
    known, unknown = sorted(lines, key=lambda line: ids.index(line[KEY_REQUEST]))
    assert (known["method"], known["path"], known["status"], known["user"]) == ("GET", "/v1/plans", 200, "admin")
    assert (unknown["status"], unknown["user"]) == (401, "")
    assert not [secret for secret in (ADMIN, NOBODY, "secret-cookie", "nightly") if secret in json.dumps(logs)]


def test_requests_are_counted_by_path_and_status(cluster: ReviewingCluster) -> None:
    registry = CollectorRegistry()
    with serving(cluster, registry=registry) as url:
        for path in ("/v1/plans/plan-done", "/v1/plans/plan-gone", "/v1/plans/plan-lost", "/nowhere"):
            ask("GET", f"{url}{path}")
        ask("BREW", f"{url}/v1/plans")
        wanted = {
            'berth_rest_requests_total{method="GET",route="/v1/plans/{name}",status="200"} 1.0',
            'berth_rest_requests_total{method="GET",route="/v1/plans/{name}",status="404"} 2.0',
            'berth_rest_requests_total{method="GET",route="none",status="404"} 1.0',
            'berth_rest_requests_total{method="OTHER",route="/v1/plans",status="405"} 1.0',
            "berth_rest_requests_open 0.0",
        }
        soon("all are counted", lambda: wanted <= set(generate_latest(registry).decode().splitlines()))


def test_no_answer_is_kept_or_guessed_at_by_browsers(calm: str) -> None:
    for path in ("/v1/plans", "/v1/nowhere", "/docs", "/openapi.json"):
        headers = ask("GET", f"{calm}{path}").headers
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "Access-Control-Allow-Origin" not in headers
        assert "Server" not in headers


def _at_once(number: int, work: Callable[[int], requests.Response]) -> list[requests.Response]:
    found: list[requests.Response] = []
    threads = [threading.Thread(target=lambda index=index: found.append(work(index))) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == number
    return found
