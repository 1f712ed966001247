"""Problem documents (RFC 9457), one for every error."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Self

import msgspec

from berth_core import BerthError, InputError, RetryableError
from berth_descheduler.migration.plans.conflicts import PlanStateError
from berth_descheduler.migration.plans.looked_at import AnotherPlanError
from berth_kube import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    KubeError,
    NotFoundError,
    UnauthorizedError,
)

MEDIA_TYPE: Final = "application/problem+json"
_TYPE_PREFIX: Final = "urn:berth:problem:"
_LONGEST_VALUE: Final = 80
_RETRY_SECONDS: Final = 2


class ProblemKind(StrEnum):
    """What is wrong, for programs; the last part of a problem's `type`. Each kind has its status."""

    status: HTTPStatus

    def __new__(cls, value: str, status: HTTPStatus) -> Self:
        """Make a member of its value and its status, which none can leave out."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.status = status
        return member

    MALFORMED = "malformed-request", HTTPStatus.BAD_REQUEST
    """The request is no HTTP or no JSON, or programs read it differently: it has two lengths, a header that goes on in
    the next line, a line without a carriage return, a key twice in one object, or another encoding than UTF-8."""
    UNAUTHENTICATED = "unauthenticated", HTTPStatus.UNAUTHORIZED
    """The request has no token, or one that the cluster does not know; WWW-Authenticate says how to send one."""
    FORBIDDEN = "forbidden", HTTPStatus.FORBIDDEN
    """The caller lacks the right that `detail` names."""
    NOT_FOUND = "not-found", HTTPStatus.NOT_FOUND
    """There is no such plan, policy, node or path."""
    METHOD_NOT_ALLOWED = "method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED
    """The path takes other methods; the header Allow lists them."""
    TOO_SLOW = "request-too-slow", HTTPStatus.REQUEST_TIMEOUT
    """Headers or body were not complete within 10 seconds, or the body came slower than 4 KiB a second."""
    CONFLICT = "conflict", HTTPStatus.CONFLICT
    """The plan is over, in another phase or not the one that was looked at, the policy invalid, a node not cordoned, or
    the key another request's."""
    TOO_LARGE = "request-too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    """The body is larger than 64 KiB."""
    TARGET_TOO_LONG = "target-too-long", HTTPStatus.REQUEST_URI_TOO_LONG
    """Path and query are longer than 16 KiB."""
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    """The body is not `application/json`."""
    INVALID = "invalid-request", HTTPStatus.UNPROCESSABLE_ENTITY
    """A field or parameter is unknown, missing or wrong; `errors` names each."""
    PRECONDITION_REQUIRED = "precondition-required", HTTPStatus.PRECONDITION_REQUIRED
    """The approval does not say which plan was looked at: it has neither If-Match nor a version or uid."""
    TOO_MANY_REQUESTS = "too-many-requests", HTTPStatus.TOO_MANY_REQUESTS
    """The caller sends too much at once, or a request without a known caller waited too long."""
    HEADERS_TOO_LARGE = "headers-too-large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    """The request has more than 64 headers, or more than 16 KiB of them."""
    INTERNAL = "internal-error", HTTPStatus.INTERNAL_SERVER_ERROR
    """The service failed; its log says why."""
    CLUSTER_REFUSED = "cluster-refused", HTTPStatus.BAD_GATEWAY
    """The service itself lacks a right in the cluster."""
    OVERLOADED = "overloaded", HTTPStatus.SERVICE_UNAVAILABLE
    """The service has as many requests, streams or connections open as it takes; Retry-After says when to try again."""
    CLUSTER_UNAVAILABLE = "cluster-unavailable", HTTPStatus.SERVICE_UNAVAILABLE
    """The API server does not answer; Retry-After says when to try again."""
    TIMED_OUT = "timed-out", HTTPStatus.GATEWAY_TIMEOUT
    """The cluster did not answer within 10 seconds, or the request took 30."""


class FieldFault(msgspec.Struct, frozen=True):
    """One thing that is wrong in a request."""

    field: str
    """Where: `body.mode`, `query.shape`, `path.name`, `header.Idempotency-Key`."""
    value: str
    """What was given, cut if long; "" if nothing was."""
    expected: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    """Identifies the request, as the service's log does."""
    errors: tuple[FieldFault, ...] = ()


class ProblemError(Exception):
    """A request that ends with a problem."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        faults: Sequence[FieldFault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.faults = tuple(faults)
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        return self.kind.status.value

    def document(self, request_id: str = "") -> Problem:
        return Problem(
            type=f"{_TYPE_PREFIX}{self.kind}",
            title=self.kind.value.replace("-", " ").capitalize(),
            status=self.status,
            detail=self.detail,
            instance=f"urn:uuid:{request_id}" if request_id else "",
            errors=self.faults,
        )

    def body(self, request_id: str = "") -> bytes:
        return msgspec.json.encode(self.document(request_id))


def invalid(faults: Sequence[FieldFault]) -> ProblemError:
    """Return the problem of a request with faults."""
    text = "; ".join(f"{fault.field} is {fault.value or 'missing'}; expected {fault.expected}" for fault in faults)
    return ProblemError(ProblemKind.INVALID, text, faults=faults)


def fault(field: str, value: object, expected: str) -> FieldFault:
    """Return a fault of one field, with the value quoted and cut."""
    return FieldFault(field, "" if value is None else _shown(value), expected)


def overloaded(detail: str, retry_seconds: float = 1.0) -> ProblemError:
    """Return the problem of a service at its limits."""
    return ProblemError(ProblemKind.OVERLOADED, detail, headers=retry_after(retry_seconds))


def too_many(detail: str, retry_seconds: float = 1.0) -> ProblemError:
    """Return the problem of a caller beyond its limits."""
    return ProblemError(ProblemKind.TOO_MANY_REQUESTS, detail, headers=retry_after(retry_seconds))


def unavailable(detail: str, retry_seconds: float | None = None) -> ProblemError:
    """Return the problem of an API server that does not answer."""
    return ProblemError(ProblemKind.CLUSTER_UNAVAILABLE, detail, headers=retry_after(retry_seconds or _RETRY_SECONDS))


def retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


FAILED: Final = "the service failed; its log says more under this instance"
_NO_RIGHT: Final = "the service itself has no right to do this in the cluster; grant it in the service's role"


def from_error(error: BerthError) -> ProblemError:
    """Return an error of Berth or of the API server as a problem."""
    match error:
        case InputError():
            problem = invalid([fault(error.field, error.value, error.expected)])
        case RetryableError():
            problem = unavailable("the cluster's API server does not answer as it should", error.retry_after_seconds)
        case AnotherPlanError():
            faults = [FieldFault(f"plan.{changed.field}", changed.then, changed.now) for changed in error.differences]
            problem = ProblemError(ProblemKind.CONFLICT, str(error), faults=faults)
        case PlanStateError():
            problem = ProblemError(ProblemKind.CONFLICT, str(error))
        case ForbiddenError() | UnauthorizedError():
            problem = ProblemError(ProblemKind.CLUSTER_REFUSED, _NO_RIGHT)
        case ConflictError():  # another wrote at the same moment
            problem = ProblemError(ProblemKind.CONFLICT, error.message or str(error), headers=retry_after(1))
        case KubeError():
            kind = next((kind for class_, kind in _BY_CLASS.items() if isinstance(error, class_)), None)
            problem = ProblemError(kind or ProblemKind.CLUSTER_REFUSED, error.message or str(error))
        case _:
            problem = ProblemError(ProblemKind.INTERNAL, FAILED)
    return problem


_BY_CLASS: Final[Mapping[type[KubeError], ProblemKind]] = {
    NotFoundError: ProblemKind.NOT_FOUND,
    AlreadyExistsError: ProblemKind.CONFLICT,
    InvalidObjectError: ProblemKind.CONFLICT,
}
"""Our writes are well formed, so the API server refuses one only because of the object's state."""


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    text = f'"{text}"' if isinstance(value, str) else text
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
