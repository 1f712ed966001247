"""The API server is asked whose a token is and what its owner may do, and nothing is made of what it does not say."""

from typing import Any

import pytest

from berth_kube import KubeClient
from berth_kube.errors import ForbiddenError, KubeError, ServerError
from berth_kube.resources import MIGRATION_PLANS, PODS
from berth_kube.reviews import Access, Subject, review_access, review_token
from scripted_server import ScriptedServer, answer, refusal

pytestmark = pytest.mark.timeout(300)

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKEN = "a-secret-token"
USER = {"username": "ann", "uid": "7", "groups": ["people"], "extra": {"zone": ["a", "b"], "age": ["9"]}}
ANN = Subject("ann", "7", ("people",), (("age", ("9",)), ("zone", ("a", "b"))))


def test_a_token_is_somebodys(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", TOKENS, answer({"status": {"authenticated": True, "user": USER}}, 201))
    assert review_token(client, TOKEN) == ANN
    (seen,) = server.requests("POST", TOKENS)
    assert seen.json["spec"] == {"token": TOKEN}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": USER},
        {"authenticated": False, "error": "token expired"},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
    ],
    ids=str,
)
def test_a_token_that_is_not_said_to_be_somebodys_is_nobodys(
    client: KubeClient, server: ScriptedServer, status: dict[str, Any]
) -> None:
    server.on("POST", TOKENS, answer({"status": status}, 201))
    assert review_token(client, TOKEN) is None


@pytest.mark.parametrize(
    ("audiences", "good"),
    [(["berth"], True), (["other", "berth"], True), (["other"], False), ([], False), (None, False)],
)
def test_a_token_must_be_said_to_be_for_an_audience_that_was_asked_for(
    client: KubeClient, server: ScriptedServer, audiences: list[str] | None, *, good: bool
) -> None:
    server.on("POST", TOKENS, answer({"status": {"authenticated": True, "user": USER, "audiences": audiences}}, 201))
    assert (review_token(client, TOKEN, ["berth"]) is not None) == good
    (seen,) = server.requests("POST", TOKENS)
    assert seen.json["spec"]["audiences"] == ["berth"]


@pytest.mark.parametrize("name", ["", "plan-1"])
def test_a_right_is_asked_for_with_all_that_is_known_of_its_owner(
    client: KubeClient, server: ScriptedServer, name: str
) -> None:
    server.on("POST", RIGHTS, answer({"status": {"allowed": True}}, 201))
    assert review_access(client, ANN, Access("patch", MIGRATION_PLANS, name))
    (seen,) = server.requests("POST", RIGHTS)
    wanted = {"verb": "patch", "group": "berth.volcano.sh", "version": "v1alpha1", "resource": "migrationplans"}
    assert seen.json["spec"] == {
        "user": "ann",
        "uid": "7",
        "groups": ["people"],
        "extra": {"age": ["9"], "zone": ["a", "b"]},
        "resourceAttributes": wanted | ({"name": name} if name else {}),
    }


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": True, "denied": False}, True),
        ({"allowed": True, "denied": True}, False),
        ({"allowed": False, "reason": "no binding"}, False),
        ({}, False),
    ],
)
def test_only_what_is_said_to_be_allowed_is(
    client: KubeClient, server: ScriptedServer, status: dict[str, Any], *, allowed: bool
) -> None:
    server.on("POST", RIGHTS, answer({"status": status}, 201))
    assert review_access(client, ANN, Access("list", PODS)) is allowed


@pytest.mark.parametrize(("status", "error"), [(403, ForbiddenError), (500, ServerError)])
def test_a_review_that_fails_does_not_tell_the_token(
    client: KubeClient, server: ScriptedServer, status: int, error: type[KubeError]
) -> None:
    server.on("POST", TOKENS, refusal(status, "Reason", "not now"))
    with pytest.raises(error) as caught:
        review_token(client, TOKEN)
    assert TOKEN not in str(caught.value)


def test_what_can_be_done_is_said_in_words() -> None:
    assert str(Access("patch", MIGRATION_PLANS, "plan-1")) == "patch migrationplans plan-1"
    assert str(Access("list", PODS)) == "list pods"
