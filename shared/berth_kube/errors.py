"""The errors of the API server and the one place where answers and broken connections become them.

KubeError
├── RetryableError (of berth_core): the same call may succeed later
│   ├── TooManyRequestsError     429
│   │   ├── EvictionBlockedError 429 because of a disruption budget; never repeated here
│   │   └── EvictionInterceptedError 429 of an admission webhook to an eviction; never repeated here
│   ├── ServerError              5xx
│   ├── MalformedAnswerError     the answer is no JSON
│   └── UnreachableError         no answer at all
│       └── UntrustedServerError the TLS handshake failed; never repeated here
└── PermanentError (of berth_core): the call will not succeed unless something else changes
    ├── UnauthorizedError        401
    ├── ForbiddenError           403
    ├── NotFoundError            404
    ├── ConflictError            409, also a precondition that does not hold
    ├── AlreadyExistsError       409 of a create
    ├── GoneError                410, a resourceVersion or a continue token that is too old
    ├── InvalidObjectError       422
    ├── UnexpectedObjectError    the answer is JSON of another shape than asked for
    └── RefusedError             every other answer
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Final

import msgspec
import urllib3.exceptions as transport_errors

from berth_core import BerthError, PermanentError, RetryableError

_LONGEST_PLAIN_MESSAGE: Final = 500
_BUDGET_CAUSE: Final = "DisruptionBudget"
_WEBHOOK_DENIAL: Final = 'admission webhook "'
"""With this the API server begins what it says for a webhook."""


EVICT: Final = "evict"
"""The verb of an eviction."""


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked, for messages: `verb` as RBAC names it, `target` as `Resource.describe` says it."""

    verb: str
    target: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What came back: HTTP status (0: nothing came), its reason word, the server's message as it stands."""

    status_code: int = 0
    reason: str = ""
    message: str = ""
    retry_after_seconds: float | None = None


class KubeError(BerthError):
    """A call that failed; the text is one sentence that names the call, the status and the server's message."""

    def __init__(self, call: Call, failure: Failure) -> None:
        super().__init__(self._sentence(call, failure))
        self.call = call
        self.status_code = failure.status_code
        self.reason = failure.reason
        self.message = failure.message
        self.retry_after_seconds = failure.retry_after_seconds

    def _sentence(self, call: Call, failure: Failure) -> str:
        """Return the error's text."""
        status = f"{failure.status_code} {failure.reason}".strip()
        return f"cannot {call.verb} {call.target}: the API server answered {status}: {failure.message}"


class TooManyRequestsError(KubeError, RetryableError):
    """The server asks to come back later."""


class EvictionBlockedError(TooManyRequestsError):
    """A disruption budget does not allow the eviction now."""


class EvictionInterceptedError(TooManyRequestsError):
    """An admission webhook answers the eviction: whoever is behind it moves the pod, or does not let it go now."""


class ServerError(KubeError, RetryableError):
    """The server failed."""


class MalformedAnswerError(KubeError, RetryableError):
    """The answer is no JSON, as from a proxy in between."""

    def _sentence(self, call: Call, failure: Failure) -> str:
        """Return the error's text."""
        return f"cannot {call.verb} {call.target}: the answer is not valid JSON: {failure.message}"


class UnreachableError(KubeError, RetryableError):
    """No complete answer came; `acted` tells whether the server may have carried the call out."""

    exit_code = 2
    acted = True

    def __init__(self, call: Call, failure: Failure, *, url: str, acted: bool) -> None:
        self.url = url
        super().__init__(call, failure)
        self.acted = acted

    def _sentence(self, call: Call, failure: Failure) -> str:
        """Return the error's text."""
        return (
            f"cannot reach the API server at {self.url}: {failure.message}; is the cluster up and the kubeconfig right?"
            f" (tried to {call.verb} {call.target})"
        )


class UntrustedServerError(UnreachableError):
    """The TLS handshake failed: another certificate authority, another host name, no TLS at all."""


class UnauthorizedError(KubeError, PermanentError):
    """The server does not know who is asking."""

    exit_code = 2


class ForbiddenError(KubeError, PermanentError):
    """The caller has no right to this."""

    exit_code = 2


class NotFoundError(KubeError, PermanentError):
    """No such object, or no such kind of object."""


class ConflictError(KubeError, PermanentError):
    """The object is not as the call assumed (resourceVersion or uid)."""


class AlreadyExistsError(KubeError, PermanentError):
    """An object of this name exists."""


class GoneError(KubeError, PermanentError):
    """A resourceVersion or a continue token is too old."""


class InvalidObjectError(KubeError, PermanentError):
    """The server refused the object's content."""


class UnexpectedObjectError(KubeError, PermanentError):
    """An object came back that does not fit the type asked for."""

    def _sentence(self, call: Call, failure: Failure) -> str:
        """Return the error's text."""
        return f"cannot {call.verb} {call.target}: the answer is not of the expected shape: {failure.message}"


class RefusedError(KubeError, PermanentError):
    """The server refused the call for a reason without a class of its own."""


# --- answers ------------------------------------------------------------------------------------------------------


class StatusCause(msgspec.Struct, frozen=True):
    """One cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The details of a Status."""

    retry_after_seconds: float | None = None
    causes: tuple[StatusCause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """The body of an answer that is no success, as of `meta/v1`."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    def blames_budget(self) -> bool:
        """Return whether a disruption budget is the cause."""
        causes = (self.details.causes if self.details else None) or ()
        return any(cause.reason == _BUDGET_CAUSE for cause in causes)


_STATUS_DECODER: Final = msgspec.json.Decoder(Status)

_BY_CODE: Final[Mapping[int, type[KubeError]]] = {
    HTTPStatus.UNAUTHORIZED: UnauthorizedError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidObjectError,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequestsError,
}


def error_from_answer(call: Call, status_code: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """Return the error that an answer other than 2xx means; `retry_after` is the header's value."""
    status = decode_status(body)
    in_body = status.details.retry_after_seconds if status.details else None
    seconds = _seconds(retry_after)
    return error_from_status(call, status, status_code, in_body if seconds is None else seconds)


def error_from_status(
    call: Call, status: Status, status_code: int, retry_after_seconds: float | None = None
) -> KubeError:
    """Return the error that a Status object means."""
    failure = Failure(status_code, status.reason or _phrase(status_code), status.message, retry_after_seconds)
    return _error_class(call, status, status_code)(call, failure)


def _error_class(call: Call, status: Status, status_code: int) -> type[KubeError]:
    """Return the class of a status code, refined by what the Status says."""
    if status_code == HTTPStatus.TOO_MANY_REQUESTS and status.blames_budget():
        return EvictionBlockedError
    if (
        status_code == HTTPStatus.TOO_MANY_REQUESTS
        and call.verb == EVICT
        and status.message.startswith(_WEBHOOK_DENIAL)
    ):
        return EvictionInterceptedError
    if status_code == HTTPStatus.CONFLICT and status.reason == "AlreadyExists":
        return AlreadyExistsError
    if status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerError
    return _BY_CODE.get(status_code, RefusedError)


def decode_status(body: bytes) -> Status:
    """Return the Status in a body; where there is none, one with the body's text as its message."""
    try:
        return _STATUS_DECODER.decode(body)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace").strip()[:_LONGEST_PLAIN_MESSAGE]
        return Status(message=text or "no further message")


def _phrase(status_code: int) -> str:
    """Return the standard words of an HTTP status."""
    try:
        return HTTPStatus(status_code).phrase
    except ValueError:
        return ""


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None for its date form, which the API server never sends."""
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None


# --- broken connections ---------------------------------------------------------------------------------------------


def error_from_transport(call: Call, url: str, error: Exception) -> UnreachableError:
    """Return the error that a failed connection means."""
    cause = _root(error)
    failure = Failure(message=_reason(cause))
    if isinstance(error, transport_errors.SSLError):
        return UntrustedServerError(call, failure, url=url, acted=False)
    return UnreachableError(call, failure, url=url, acted=not isinstance(error, _BEFORE_SENDING))


_BEFORE_SENDING: Final = (
    transport_errors.NewConnectionError,
    transport_errors.ConnectTimeoutError,
    transport_errors.ProxyError,
    transport_errors.LocationValueError,
)


def _root(error: BaseException) -> BaseException:
    """Return the innermost error that says something of its own."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        nested = error.__cause__ or error.__context__
        nested = nested or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if nested is None or not str(nested):
            break
        error = nested
    return error


def _reason(error: BaseException) -> str:
    """Return the plain words of a connection error."""
    match error:
        case TimeoutError() | transport_errors.TimeoutError():
            return "timed out"
        case OSError(strerror=str(text)):
            return text
        case HTTPException() | ValueError():
            # What http.client says of a body that ends too early speaks of its own parsing.
            return "the connection was cut in the middle of the answer"
        case _:
            return str(error) or type(error).__name__


def error_from_decoding(call: Call, error: msgspec.DecodeError) -> KubeError:
    """Return the error that an undecodable body means."""
    failure = Failure(message=str(error))
    if isinstance(error, msgspec.ValidationError):
        return UnexpectedObjectError(call, failure)
    return MalformedAnswerError(call, failure)
