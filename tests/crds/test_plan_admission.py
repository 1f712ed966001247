"""What the API server says to a MigrationPlan, before Berth sees it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pytest

from berth_core.migration_plans import (
    PLAN_API_VERSION,
    PLAN_KIND,
    MigrationPlan,
    MigrationPlanSpec,
    NodeBefore,
    NodesBefore,
    Objective,
    PlannedMove,
    PlanPhase,
    Predicted,
    RunMode,
)
from berth_core.plan_rooms import Room, RoomSlot
from berth_core.reservations import ObjectReference
from plain_api import PlainApi

pytestmark = pytest.mark.cluster

PLANS: Final = "apis/berth.volcano.sh/v1alpha1/migrationplans"

Store = Callable[[str, dict[str, Any]], str]

SPEC: Final = MigrationPlanSpec(
    policy="nightly",
    trigger="Cron",
    mode=RunMode.APPROVE,
    requested_by="ada",
    approve_before="2030-01-01T00:00:00Z",
    objective=Objective(
        plugin="Other", strategy="Consolidate", args={"lowThresholds": {"cpu": 30}, "resourceType": "cpu"}
    ),
    moves=(
        PlannedMove(
            namespace="shop",
            pod="web-7d4f-x2x9z",
            pod_uid="0d8f",
            owner=ObjectReference(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web-7d", uid="11"),
            source="node-1",
            target="node-2",
            requests={"cpu": "500m", "memory": "1Gi"},
            wave=1,
        ),
    ),
    rooms=(
        Room(
            name="shop/batch",
            namespace="shop",
            gang="batch",
            slots=(RoomSlot(node="node-1", pod="batch-0", pod_uid="f00d"),),
        ),
        Room(
            name="cpu=4",
            namespace="shop",
            requests={"cpu": "4"},
            selector="app=large",
            slots=(RoomSlot(node="node-1"), RoomSlot(node="node-1")),
        ),
    ),
    predicted=Predicted(nodes=3, moves=1, waves=2, freed_nodes=("node-1",)),
    nodes_before=NodesBefore(
        resource="cpu",
        nodes=(
            NodeBefore(name="node-1", allocatable="15890m", requested="500m", pods=1),
            NodeBefore(name="node-2", allocatable="15890m", requested="0", pods=0),
        ),
        left_out=1,
    ),
)
MOVE: Final[dict[str, Any]] = msgspec.to_builtins(SPEC.moves[0])


def plan(changes: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return a plan with parts of its spec replaced."""
    return {"apiVersion": PLAN_API_VERSION, "kind": PLAN_KIND, "spec": {**msgspec.to_builtins(SPEC), **changes}}


def test_a_plan_is_kept_as_it_was_given(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, plan())
    assert MigrationPlan.from_api(api.get(path).body).spec == SPEC


def test_an_empty_spec_says_what_it_means(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, {"apiVersion": PLAN_API_VERSION, "kind": PLAN_KIND, "spec": {}})
    body = api.get(path).body
    assert MigrationPlan.from_api(body).spec == MigrationPlanSpec()
    assert body["spec"] == {
        "approved": False,
        "aborted": False,
        "trigger": "Manual",
        "objective": {},
    }


BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a move to its own source": (
        {"moves": [{**MOVE, "target": "node-1"}]},
        "a move's source and target must be different nodes",
    ),
    "a move without a pod": (
        {"moves": [{k: v for k, v in MOVE.items() if k != "pod"}]},
        "spec.moves[0].pod: Required value",
    ),
    "a move without a target": (
        {"moves": [{**MOVE, "target": ""}]},
        "spec.moves[0].target in body should be at least 1",
    ),
    "a wave before the first": (
        {"moves": [{**MOVE, "wave": -1}]},
        "spec.moves[0].wave in body should be greater than",
    ),
    "more moves than one object holds": (
        {"moves": [MOVE] * 2001},
        "spec.moves: Too many: 2001: must have at most",
    ),
    "a namespace that leads elsewhere": (
        {"moves": [{**MOVE, "namespace": "../../../apis"}]},
        "spec.moves[0].namespace in body should match",
    ),
    "a pod with a slash": ({"moves": [{**MOVE, "pod": "a/b"}]}, "spec.moves[0].pod in body should match"),
    "a source with an escaped slash": (
        {"moves": [{**MOVE, "source": "a%2fb"}]},
        "spec.moves[0].source in body should match",
    ),
    "a target with a line break": (
        {"moves": [{**MOVE, "target": "node-2\n"}]},
        "spec.moves[0].target in body should match",
    ),
    "room in the folder above": (
        {"rooms": [{"name": "x", "namespace": ".."}]},
        "spec.rooms[0].namespace in body should match",
    ),
    "room on no node": (
        {"rooms": [{"name": "x", "namespace": "shop", "slots": [{"node": "Node 1"}]}]},
        "spec.rooms[0].slots[0].node in body should match",
    ),
    "a policy that cannot be": ({"policy": "../nodes"}, "spec.policy in body should match"),
    "a time after all years": (
        {"approveBefore": "9999-12-31T23:59:59-23:59"},
        "approveBefore must be a time from 1970 to 9999",
    ),
    "a time before all years": (
        {"approveBefore": "0001-01-01T00:00:00+23:59"},
        "approveBefore must be a time from 1970 to 9999",
    ),
    "a time that only Go reads": (
        {"approveBefore": "2030-01-01T00:00:00x5Z"},
        "spec.approveBefore in body should match",
    ),
}


@pytest.mark.parametrize(("change", "want_message"), BAD.values(), ids=BAD)
def test_a_plan_is_refused_in_clear_words(api: PlainApi, change: dict[str, Any], want_message: str) -> None:
    body = plan(change) | {"metadata": {"name": "bad"}}
    answer = api.create(PLANS, body, dry_run=True)
    assert answer.code == 422
    assert want_message in answer.message


def test_a_plans_name_is_a_label(api: PlainApi) -> None:
    bodies = {length: plan() | {"metadata": {"name": length * "x"}} for length in (63, 64)}
    answers = {length: api.create(PLANS, body, dry_run=True) for length, body in bodies.items()}
    assert not answers[63].refused, answers[63].message
    assert answers[64].code == 422
    assert "a plan's name must have at most 63 characters" in answers[64].message


@pytest.mark.parametrize("time", ["2030-01-01T02:00:00+02:00", "1970-01-01T00:00:00Z", "9999-12-30T00:00:00.25Z"])
def test_a_time_that_every_reader_can_hold_is_accepted(api: PlainApi, time: str) -> None:
    answer = api.create(PLANS, plan({"approveBefore": time}) | {"metadata": {"name": "good"}}, dry_run=True)
    assert not answer.refused, answer.message
    assert MigrationPlan.from_api({"metadata": {"name": "x"}, "spec": {"approveBefore": time}}).fault is None


REMOVED: Final = None
"""What a merge patch says of a field that is to go."""

IMMUTABLE: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "another policy": ({"policy": "hourly"}, "a plan's policy is immutable"),
    "no policy": ({"policy": REMOVED}, "a plan's policy is immutable"),
    "another mode": ({"mode": "Auto"}, "a plan's mode is immutable"),
    "no mode": ({"mode": REMOVED}, "a plan's mode is immutable"),
    "another requester": ({"requestedBy": "eve"}, "a plan's requestedBy is immutable"),
    "another end of the waiting": ({"approveBefore": "2031-01-01T00:00:00Z"}, "a plan's approveBefore is immutable"),
    "another trigger": ({"trigger": "Manual"}, "a plan's trigger is immutable"),
    "another strategy": ({"objective": {"strategy": "MakeRoom"}}, "a plan's objective is immutable"),
    "another argument": ({"objective": {"args": {"lowThresholds": {"cpu": 31}}}}, "a plan's objective is immutable"),
    "an argument of another name": (
        {"objective": {"args": {"kind": REMOVED, "sort": "cpu"}}},
        "a plan's objective is immutable",
    ),
    "another target": ({"moves": [{**MOVE, "target": "node-3"}]}, "a plan's moves are immutable"),
    "no moves": ({"moves": REMOVED}, "a plan's moves are immutable"),
    "room for somebody else": (
        {"rooms": [{"name": "shop/web-0", "namespace": "shop"}]},
        "a plan's rooms are immutable",
    ),
    "no rooms": ({"rooms": REMOVED}, "a plan's rooms are immutable"),
    "another prediction": ({"predicted": {"moves": 2}}, "a plan's prediction is immutable"),
    "other nodes before": ({"nodesBefore": {"leftOut": 2}}, "a plan's nodesBefore is immutable"),
    "no nodes before": ({"nodesBefore": REMOVED}, "a plan's nodesBefore is immutable"),
    "no prediction": ({"predicted": REMOVED}, "a plan's prediction is immutable"),
}


@pytest.mark.parametrize(("change", "want_message"), IMMUTABLE.values(), ids=IMMUTABLE)
def test_what_is_planned_cannot_be_changed(
    api: PlainApi, stored: Store, change: dict[str, Any], want_message: str
) -> None:
    answer = api.merge_patch(stored(PLANS, plan()), {"spec": change}, dry_run=True)
    assert answer.code == 422
    assert f"{want_message}: make a new plan" in answer.message


UNKNOWN: Final[dict[str, dict[str, Any]]] = {
    "spec.approve": {"approve": True},
    "spec.moves[0].to": {"moves": [{**MOVE, "to": "node-3"}]},
    "spec.predicted.freed": {"predicted": {"nodes": 3, "moves": 1, "waves": 2, "freed": ["node-1"]}},
}


@pytest.mark.parametrize(("name", "change"), UNKNOWN.items(), ids=UNKNOWN)
def test_an_unknown_field_is_refused_by_its_name_as_kubectl_asks(
    api: PlainApi, name: str, change: dict[str, Any]
) -> None:
    answer = api.create(PLANS, {**plan(change), "metadata": {"name": "bad"}}, dry_run=True, strict=True)
    assert answer.code == 400
    assert f'unknown field "{name}"' in answer.message


def test_approval_can_be_given_and_not_taken_back(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, plan())
    given = api.merge_patch(path, {"spec": {"approved": True}})
    assert not given.refused, given.message
    taken_back = api.merge_patch(path, {"spec": {"approved": False}})
    assert taken_back.code == 422
    assert "approved can be given, not taken back: abort the plan instead" in taken_back.message


@pytest.mark.parametrize(("decision", "who"), [("approved", "approvedBy"), ("aborted", "abortedBy")])
def test_who_decided_comes_with_the_decision_and_stays(api: PlainApi, stored: Store, decision: str, who: str) -> None:
    path = stored(PLANS, plan())
    early = api.merge_patch(path, {"spec": {who: "ada"}}, dry_run=True)
    assert early.code == 422
    assert f"{who} comes with the" in early.message
    given = api.merge_patch(path, {"spec": {decision: True, who: "ada"}})
    assert not given.refused, given.message
    for change in ("eve", REMOVED):
        forged = api.merge_patch(path, {"spec": {decision: True, who: change}}, dry_run=True)
        assert forged.code == 422
        assert f"{who} comes with the" in forged.message
    nameless = api.merge_patch(path, {"spec": {decision: True}})
    assert not nameless.refused, nameless.message


def test_an_abort_can_be_asked_for_and_not_taken_back(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, plan())
    given = api.merge_patch(path, {"spec": {"aborted": True}})
    assert not given.refused, given.message
    taken_back = api.merge_patch(path, {"spec": {"aborted": False}})
    assert taken_back.code == 422
    assert "aborted can be given, not taken back: make a new plan" in taken_back.message


def test_a_plan_that_is_only_shown_cannot_be_approved(api: PlainApi, stored: Store) -> None:
    answer = api.merge_patch(stored(PLANS, plan({"mode": "Plan"})), {"spec": {"approved": True}})
    assert answer.code == 422
    assert "never carried out: run the policy again in the mode Approve" in answer.message


def requested() -> dict[str, Any]:
    """Return a plan that was asked for."""
    return {"apiVersion": PLAN_API_VERSION, "kind": PLAN_KIND, "spec": {"policy": "nightly", "mode": "Approve"}}


FOUND: Final[dict[str, Any]] = {
    "objective": msgspec.to_builtins(SPEC.objective),
    "moves": [MOVE],
    "rooms": [msgspec.to_builtins(room) for room in SPEC.rooms],
    "predicted": msgspec.to_builtins(SPEC.predicted),
    "nodesBefore": msgspec.to_builtins(SPEC.nodes_before),
    "approveBefore": "2030-01-01T00:00:00Z",
}


def test_a_plan_that_was_asked_for_gets_its_moves_once(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, requested())
    assert MigrationPlan.from_api(api.get(path).body).phase is PlanPhase.REQUESTED
    filled = api.merge_patch(path, {"spec": FOUND})
    assert not filled.refused, filled.message
    found = MigrationPlan.from_api(api.get(path).body)
    assert (found.spec.moves, found.phase) == (SPEC.moves, PlanPhase.PROPOSED)
    again = api.merge_patch(path, {"spec": {"moves": [{**MOVE, "target": "node-3"}]}})
    assert again.code == 422
    assert "a plan's moves are immutable" in again.message


def test_a_run_that_finds_nothing_to_move_fills_its_plan_with_no_moves_for_good(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, requested())
    empty = {**FOUND, "moves": [], "predicted": {"nodes": 3, "moves": 0, "waves": 0}}
    filled = api.merge_patch(path, {"spec": empty})
    assert not filled.refused, filled.message
    assert api.merge_patch(path, {"spec": {"moves": [MOVE]}}).code == 422


def test_a_request_that_was_copied_from_a_plan_gets_its_own_nodes(api: PlainApi, stored: Store) -> None:
    request = requested()
    request["spec"]["nodesBefore"] = {"resource": "memory"}
    filled = api.merge_patch(stored(PLANS, request), {"spec": FOUND})
    assert not filled.refused, filled.message


@pytest.mark.parametrize("name", sorted(FOUND.keys() - {"predicted"}))
def test_what_was_found_comes_with_its_prediction_or_not_at_all(api: PlainApi, stored: Store, name: str) -> None:
    answer = api.merge_patch(stored(PLANS, requested()), {"spec": {name: FOUND[name]}})
    assert answer.code == 422
