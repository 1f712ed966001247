"""Token reviews and subject access reviews."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from berth_kube.client import KubeClient
from berth_kube.resources import (
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A user that the API server knows; `extra` comes from its authenticators."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """A possible request; `verb` is as in RBAC, an empty `name` means all objects."""

    verb: str
    resource: Resource
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.describe(self.name)}"


class _User(msgspec.Struct, frozen=True):
    """A user in a review."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    """The result of a TokenReview."""

    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    """An answered TokenReview, without the token."""

    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    """The result of a SubjectAccessReview."""

    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    """An answered SubjectAccessReview."""

    status: _AccessStatus = _AccessStatus()


class _SelfStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a SelfSubjectReview."""

    user_info: _User = _User()


class _SelfReview(msgspec.Struct, frozen=True):
    """An answered SelfSubjectReview."""

    status: _SelfStatus = _SelfStatus()


def review_token(client: KubeClient, token: str, audiences: Sequence[str] = ()) -> Subject | None:
    """Return a token's user, None for an invalid token.

    A KubeError never contains the token. With audiences, the API server must confirm that the token is for one of them;
    without, it is for the server.
    """
    spec: dict[str, Any] = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
    status = client.create(TOKEN_REVIEWS, _body(TOKEN_REVIEWS, spec), type=_TokenReview).status
    if not status.authenticated or not status.user.username:
        return None
    # An authenticator that knows nothing of audiences leaves the field empty: the token may be one for the API server
    # alone. The API asks clients for this check (`TokenReviewStatus` in authentication/v1/types.go).
    if audiences and not set(audiences) & set(status.audiences):
        return None
    user = status.user
    extra = tuple(sorted((key, tuple(values)) for key, values in user.extra.items()))
    return Subject(user.username, user.uid, user.groups, extra)


def review_access(client: KubeClient, subject: Subject, access: Access) -> bool:
    """Return whether the API server's authorizers allow a request; raises a KubeError."""
    return _is_allowed(client, SUBJECT_ACCESS_REVIEWS, access, _describe_subject(subject))


def review_own_user(client: KubeClient) -> Subject | None:
    """Return as whom the API server authenticates the client, None for an anonymous user; raises a KubeError."""
    body = _body(SELF_SUBJECT_REVIEWS, {})
    user = client.create(SELF_SUBJECT_REVIEWS, body, type=_SelfReview).status.user_info
    return Subject(user.username, user.uid, user.groups) if user.username else None


def review_own_access(client: KubeClient, access: Access) -> bool:
    """Return whether the client itself may make a request; raises a KubeError."""
    return _is_allowed(client, SELF_SUBJECT_ACCESS_REVIEWS, access, {})


def _is_allowed(client: KubeClient, resource: Resource, access: Access, described_subject: Mapping[str, Any]) -> bool:
    spec = {**described_subject, "resourceAttributes": _describe_access(access)}
    status = client.create(resource, _body(resource, spec), type=_AccessReview).status
    return status.allowed and not status.denied


def _body(resource: Resource, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **({"spec": spec} if spec else {})}


def _describe_subject(subject: Subject) -> Mapping[str, Any]:
    described: dict[str, Any] = {"user": subject.user, "groups": list(subject.groups)}
    if subject.uid:
        described["uid"] = subject.uid
    if subject.extra:
        described["extra"] = {key: list(values) for key, values in subject.extra}
    return described


def _describe_access(access: Access) -> Mapping[str, str]:
    resource = access.resource
    described = {"verb": access.verb, "group": resource.group, "version": resource.version, "resource": resource.plural}
    return described | ({"name": access.name} if access.name else {})
