"""Errors of the API server, made from answers and broken connections.

KubeError
├── RetryableError (of berth_core): the same call may succeed later
│   ├── TooManyRequestsError     429
│   │   ├── EvictionBlockedError 429 because of a disruption budget; never repeated here
│   │   └── EvictionInterceptedError 429 of an admission webhook to an eviction; never repeated here
│   ├── ServerError              5xx
│   ├── MalformedAnswerError     the answer is no JSON
│   └── UnreachableError         no answer at all
│       └── UntrustedServerError its certificate is not trusted, or it speaks no TLS; never repeated here
└── PermanentError (of berth_core): the call will not succeed unless something else changes
    ├── UnauthorizedError        401
    ├── ForbiddenError           403
    ├── NotFoundError            404
    ├── ConflictError            409, also a precondition that does not hold; 422 for the uid in a patch
    ├── AlreadyExistsError       409 of a create
    ├── GoneError                410, a resourceVersion or a continue token that is too old
    ├── InvalidObjectError       422
    ├── UnexpectedObjectError    the answer is JSON of another shape than asked for
    └── RefusedError             every other answer
"""

import re
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Final

import msgspec
import urllib3.exceptions as transport_errors
from urllib3.util.ssl_match_hostname import CertificateError

from berth_core import BerthError, PermanentError, RetryableError
from berth_core.decoding import Decoder

_LONGEST_PLAIN_MESSAGE: Final = 500
_BUDGET_CAUSE: Final = "DisruptionBudget"
"""`DisruptionBudgetCause` of policy/v1, as pkg/registry/core/pod/storage/eviction.go answers."""
_UID_FIELD: Final = "metadata.uid"
_WEBHOOK_DENIAL: Final = 'admission webhook "'
"""The prefix of the API server's message for a webhook's denial."""


_ABOUT_A_POD: Final = re.compile(r'^(pods|Pod) "[^"]*" is (forbidden|invalid): ')

EVICT: Final = "evict"
"""The verb of an eviction."""
PATCH: Final = "patch"
"""The verb of a patch."""


@dataclass(frozen=True, slots=True)
class Call:
    """The request, for messages: `verb` as in RBAC, `target` from `Resource.describe`."""

    verb: str
    target: str


@dataclass(frozen=True, slots=True)
class Failure:
    """HTTP status, reason word and message of a failure; the status is 0 without an answer."""

    status_code: int = 0
    reason: str = ""
    message: str = ""
    retry_after_seconds: float | None = None
    continue_token: str = ""
    """With a token that is too old: one for the rest of the list as it is now."""


class KubeError(BerthError):
    """A failed call; the text is a sentence with call, status and the server's message."""

    def __init__(self, call: Call, failure: Failure) -> None:
        super().__init__(self._sentence(call, failure))
        self.call = call
        self.status_code = failure.status_code
        self.reason = failure.reason
        self.message = failure.message
        self.retry_after_seconds = failure.retry_after_seconds
        self.continue_token = failure.continue_token

    def _sentence(self, call: Call, failure: Failure) -> str:
        status = f"{failure.status_code} {failure.reason}".strip()
        return f"cannot {call.verb} {call.target}: the API server answered {status}: {failure.message}"


class TooManyRequestsError(KubeError, RetryableError):
    """The server asks to retry later."""


class EvictionBlockedError(TooManyRequestsError):
    """A disruption budget does not allow the eviction now."""


class EvictionInterceptedError(TooManyRequestsError):
    """An admission webhook answered the eviction: its owner moves the pod itself, or refuses for now."""


class ServerError(KubeError, RetryableError):
    """The server failed."""


class MalformedAnswerError(KubeError, RetryableError):
    """The answer is not JSON, as from a proxy in between."""

    def _sentence(self, call: Call, failure: Failure) -> str:
        return f"cannot {call.verb} {call.target}: the answer is not valid JSON: {failure.message}"


class UnreachableError(KubeError, RetryableError):
    """No complete answer came; `acted` says whether the server may have executed the call."""

    exit_code = 2
    acted = True

    def __init__(self, call: Call, failure: Failure, *, url: str, acted: bool) -> None:
        self.url = url
        super().__init__(call, failure)
        self.acted = acted

    def _sentence(self, call: Call, failure: Failure) -> str:
        return (
            f"cannot reach the API server at {self.url}: {failure.message}; is the cluster up and the kubeconfig right?"
            f" (tried to {call.verb} {call.target})"
        )


class UntrustedServerError(UnreachableError):
    """The server is not the one of the kubeconfig: another authority, another host name, or no TLS.

    A handshake that is cut off or ends in an alert does not count: a load balancer without healthy backends accepts
    connections and closes them.
    """


class UnauthorizedError(KubeError, PermanentError):
    """The server does not know the caller."""

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
    """An object came back that does not fit the requested type."""

    def _sentence(self, call: Call, failure: Failure) -> str:
        return f"cannot {call.verb} {call.target}: the answer is not of the expected shape: {failure.message}"


class RefusedError(KubeError, PermanentError):
    """The server refused the call for a reason that has no class of its own."""


class StatusCause(msgspec.Struct, frozen=True):
    """One cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The details of a Status."""

    retry_after_seconds: float | None = None
    causes: tuple[StatusCause, ...] = ()


class StatusMetadata(msgspec.Struct, frozen=True):
    """The metadata of a Status."""

    continue_token: str = msgspec.field(name="continue", default="")


class Status(msgspec.Struct, frozen=True):
    """The body of a failure, as of `meta/v1`."""

    metadata: StatusMetadata = StatusMetadata()
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        return self.details.causes if self.details else ()

    def blames_budget(self) -> bool:
        """Return whether a disruption budget is the cause."""
        return any(cause.reason == _BUDGET_CAUSE for cause in self.causes)

    def blames_uid(self) -> bool:
        """Return whether the uid in a patch is another object's."""
        return any(cause.field == _UID_FIELD for cause in self.causes)


_STATUS_DECODER: Final = Decoder(Status)

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
    """Return the error for an answer other than 2xx; `retry_after` is the header's value."""
    status = decode_status(body)
    in_body = status.details.retry_after_seconds if status.details else None
    seconds = _seconds(retry_after)
    return error_from_status(call, status, status_code, in_body if seconds is None else seconds)


def error_from_status(
    call: Call, status: Status, status_code: int, retry_after_seconds: float | None = None
) -> KubeError:
    """Return the error for a Status object."""
    failure = Failure(
        status_code,
        status.reason or _phrase(status_code),
        status.message,
        retry_after_seconds,
        status.metadata.continue_token,
    )
    return _error_class(call, status, status_code)(call, failure)


def _error_class(call: Call, status: Status, status_code: int) -> type[KubeError]:
    """Return the class for a status code, refined by the Status."""
    is_of_webhook = status.message.startswith(_WEBHOOK_DENIAL)
    if status_code == HTTPStatus.TOO_MANY_REQUESTS and status.blames_budget():
        return EvictionBlockedError
    if status_code == HTTPStatus.TOO_MANY_REQUESTS and call.verb == EVICT and is_of_webhook:
        return EvictionInterceptedError
    # 409 stands for both: only the reason tells a taken name from a changed resourceVersion.
    if status_code == HTTPStatus.CONFLICT and status.reason == "AlreadyExists":
        return AlreadyExistsError
    # A uid in a patch is no precondition of the API: it is validated as an immutable field, and refused as invalid
    # (`ValidateObjectMetaAccessorUpdate` in apimachinery's pkg/api/validation).
    is_patch_refused = status_code == HTTPStatus.UNPROCESSABLE_ENTITY and call.verb == PATCH and not is_of_webhook
    if is_patch_refused and status.blames_uid():
        return ConflictError
    # Among them 500 from webhooks that fail and 504 from an etcd that is slow: the call may have been carried out.
    if status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerError
    return _BY_CODE.get(status_code, RefusedError)


def decode_status(body: bytes) -> Status:
    """Return the Status in a body; a body without one, as of a proxy, gives a Status with its text."""
    try:
        return _STATUS_DECODER.decode(body)
    except msgspec.DecodeError:
        # Load balancers and proxies answer with a page of HTML while no API server is behind them.
        text = body.decode("utf-8", "replace").strip()[:_LONGEST_PLAIN_MESSAGE]
        return Status(message=text or "no further message")


def _phrase(status_code: int) -> str:
    try:
        return HTTPStatus(status_code).phrase
    except ValueError:
        return ""


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of Retry-After; None for a date, which the API server never sends."""
    try:
        # Priority and fairness answers 429 with Retry-After in seconds when its queues are full (KEP-1040).
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None


def error_from_transport(call: Call, url: str, error: Exception) -> UnreachableError:
    """Return the error for a failed connection."""
    cause = _root(error)
    failure = Failure(message=_reason(cause))
    if isinstance(error, transport_errors.SSLError) and _is_another_server(cause):
        return UntrustedServerError(call, failure, url=url, acted=False)
    # urllib3 has one error for handshakes and for answers that break off: the server may have executed the call.
    return UnreachableError(call, failure, url=url, acted=not isinstance(error, _BEFORE_SENDING))


_BEFORE_SENDING: Final = (
    transport_errors.NewConnectionError,
    transport_errors.ConnectTimeoutError,
    transport_errors.ProxyError,
    transport_errors.LocationValueError,
    transport_errors.ClosedPoolError,
)


_NO_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "WRONG_SSL_VERSION",
        "UNKNOWN_PROTOCOL",
        "UNSUPPORTED_PROTOCOL",
        "VERSION_TOO_LOW",
        "NO_PROTOCOLS_AVAILABLE",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "RECORD_LAYER_FAILURE",
    }
)
"""What OpenSSL says of a peer that speaks another protocol; from 3.2 on it may say only RECORD_LAYER_FAILURE."""


def _is_another_server(cause: BaseException) -> bool:
    """Return whether the TLS error means that the peer is not the server of the kubeconfig."""
    match cause:
        case ssl.SSLCertVerificationError() | CertificateError():
            return True
        case ssl.SSLError():
            return cause.reason in _NO_TLS
        case _:
            # urllib3 words a fingerprint that does not match itself, and a certificate that is missing.
            return isinstance(cause, transport_errors.SSLError)


_OF_TRANSPORT: Final = (OSError, HTTPException, ValueError, zlib.error, transport_errors.HTTPError)
"""Errors of connections and of answers that cannot be read; none of ours is one of them."""


def _root(error: BaseException) -> BaseException:
    """Return the innermost error with a message; urllib3 wraps a socket's error several times, as cause or argument."""
    seen_ids: set[int] = set()
    while id(error) not in seen_ids:
        seen_ids.add(id(error))
        nested_error = error.__cause__ or error.__context__
        nested_error = nested_error or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        # What the caller was handling when it made the call is the context of the first error, and not its cause.
        if not isinstance(nested_error, _OF_TRANSPORT) or not str(nested_error):
            break
        error = nested_error
    return error


def _reason(error: BaseException) -> str:
    """Return a connection error in plain words."""
    match error:
        case TimeoutError() | transport_errors.TimeoutError():
            return "timed out"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return "the connection was closed without an answer"
        # The kernel's own words ("Connection refused") without the number that Python puts before them.
        case OSError(strerror=str(text)):
            return text
        case HTTPException() | ValueError():
            # http.client's message on a body that ends too early is about its own parsing.
            return "the connection was cut in the middle of the answer"
        case _:
            return str(error) or type(error).__name__


def error_from_decoding(call: Call, error: msgspec.DecodeError) -> KubeError:
    """Return the error for an undecodable body."""
    failure = Failure(message=str(error))
    # JSON of another shape stays so however often it is asked for; what is no JSON may come from a proxy, and the next
    # answer may not.
    if isinstance(error, msgspec.ValidationError):
        return UnexpectedObjectError(call, failure)
    return MalformedAnswerError(call, failure)


def without_pod_name(message: str) -> str:
    """Return what an API server says of a pod that it does not create, without the pod's name."""
    return _ABOUT_A_POD.sub("", message)
