import json
import ssl
import zlib
from dataclasses import dataclass

import pytest
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ClosedPoolError, DecodeError, SSLError

from berth_core.errors import BerthError, PermanentError, RetryableError
from berth_kube.errors import (
    AlreadyExistsError,
    Call,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    ForbiddenError,
    GoneError,
    InvalidObjectError,
    KubeError,
    NotFoundError,
    RefusedError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    UntrustedServerError,
    error_from_answer,
    error_from_transport,
)

CALL = Call("evict", "pods default/web-0")
DENIED = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: Eviction triggered'


def status(code: int, reason: str, message: str, **details: object) -> bytes:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return json.dumps(body).encode()


ANOTHER_UID = {"causes": [{"reason": "FieldValueInvalid", "message": "immutable", "field": "metadata.uid"}]}
ANOTHER_FIELD_UID = {"causes": [{"reason": "FieldValueInvalid", "message": "uid", "field": "spec.metadata.uid"}]}
ANOTHER_OWNER = {"causes": [{"reason": "FieldValueInvalid", "message": "immutable", "field": "spec.owners"}]}
BUDGET = {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 3 healthy pods"}]}


@dataclass(frozen=True)
class Case:
    code: int
    body: bytes
    want_class: type[KubeError]
    want_retryable: bool
    want_message: str
    retry_after: str | None = None
    want_retry_after: float | None = None
    verb: str = "evict"


CASES = {
    "an unknown caller": Case(
        401,
        status(401, "Unauthorized", "Unauthorized"),
        UnauthorizedError,
        want_retryable=False,
        want_message="Unauthorized",
    ),
    "a caller without the right": Case(
        403,
        status(403, "Forbidden", 'pods is forbidden: User "me" cannot list'),
        ForbiddenError,
        want_retryable=False,
        want_message='pods is forbidden: User "me" cannot list',
    ),
    "no such object": Case(
        404, status(404, "NotFound", "gone"), NotFoundError, want_retryable=False, want_message="gone"
    ),
    "a path that the server does not know": Case(
        404, b"404 page not found\n", NotFoundError, want_retryable=False, want_message="404 page not found"
    ),
    "a precondition that does not hold": Case(
        409, status(409, "Conflict", "uid"), ConflictError, want_retryable=False, want_message="uid"
    ),
    "a name that is taken": Case(
        409, status(409, "AlreadyExists", "exists"), AlreadyExistsError, want_retryable=False, want_message="exists"
    ),
    "a version that is too old": Case(
        410, status(410, "Expired", "too old"), GoneError, want_retryable=False, want_message="too old"
    ),
    "an object that is refused": Case(
        422, status(422, "Invalid", "spec.x: bad"), InvalidObjectError, want_retryable=False, want_message="spec.x: bad"
    ),
    "a patch with the uid of an object that had the name before": Case(
        422,
        status(422, "Invalid", "metadata.uid: field is immutable", **ANOTHER_UID),
        ConflictError,
        want_retryable=False,
        want_message="metadata.uid: field is immutable",
        verb="patch",
    ),
    "an update with a uid that may not change": Case(
        422,
        status(422, "Invalid", "metadata.uid: field is immutable", **ANOTHER_UID),
        InvalidObjectError,
        want_retryable=False,
        want_message="metadata.uid: field is immutable",
        verb="update",
    ),
    "a patch that a webhook refuses for a uid": Case(
        422,
        status(422, "Invalid", 'admission webhook "a.b" denied the request: no such uid', **ANOTHER_UID),
        InvalidObjectError,
        want_retryable=False,
        want_message='admission webhook "a.b" denied the request: no such uid',
        verb="patch",
    ),
    "a patch with a field called uid that may not change": Case(
        422,
        status(422, "Invalid", "spec.metadata.uid: invalid", **ANOTHER_FIELD_UID),
        InvalidObjectError,
        want_retryable=False,
        want_message="spec.metadata.uid: invalid",
        verb="patch",
    ),
    "a patch with another field that may not change": Case(
        422,
        status(422, "Invalid", "spec.owners: field is immutable", **ANOTHER_OWNER),
        InvalidObjectError,
        want_retryable=False,
        want_message="spec.owners: field is immutable",
        verb="patch",
    ),
    "a body that the server cannot take": Case(
        415, status(415, "UnsupportedMediaType", "no"), RefusedError, want_retryable=False, want_message="no"
    ),
    "a redirect": Case(302, b"", RefusedError, want_retryable=False, want_message="no further message"),
    "too many requests, the time in the header": Case(
        429,
        b"Too many requests, please try again later.\n",
        TooManyRequestsError,
        want_retryable=True,
        want_message="Too many requests, please try again later.",
        retry_after="2",
        want_retry_after=2.0,
    ),
    "too many requests, the time in the body": Case(
        429,
        status(429, "TooManyRequests", "slow", retryAfterSeconds=7),
        TooManyRequestsError,
        want_retryable=True,
        want_message="slow",
        want_retry_after=7.0,
    ),
    "a date instead of seconds, which counts as no time": Case(
        429,
        status(429, "TooManyRequests", "slow"),
        TooManyRequestsError,
        want_retryable=True,
        want_message="slow",
        retry_after="Wed, 21 Oct 2026 07:28:00 GMT",
    ),
    "an eviction that a disruption budget forbids": Case(
        429,
        status(429, "TooManyRequests", "Cannot evict pod", **BUDGET),
        EvictionBlockedError,
        want_retryable=True,
        want_message="Cannot evict pod",
    ),
    "a budget that a webhook speaks of": Case(
        429,
        status(429, "TooManyRequests", "it would violate the disruption budget web"),
        TooManyRequestsError,
        want_retryable=True,
        want_message="it would violate the disruption budget web",
    ),
    "a call that a webhook turns away for now": Case(
        429,
        status(429, "TooManyRequests", DENIED),
        TooManyRequestsError,
        want_retryable=True,
        want_message=DENIED,
        verb="create",
    ),
    "an eviction that a webhook answers, such as KubeVirt's": Case(
        429,
        status(429, "TooManyRequests", DENIED),
        EvictionInterceptedError,
        want_retryable=True,
        want_message=DENIED,
    ),
    "a server that failed": Case(
        500, status(500, "InternalError", "boom"), ServerError, want_retryable=True, want_message="boom"
    ),
    "a proxy's page": Case(
        502, b"<html>Bad Gateway</html>", ServerError, want_retryable=True, want_message="<html>Bad Gateway</html>"
    ),
    "a code that no standard knows": Case(
        599, b"\xff\xfe", ServerError, want_retryable=True, want_message="\ufffd\ufffd"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_answer_becomes_the_error_that_says_what_to_do(case: Case) -> None:
    error = error_from_answer(Call(case.verb, CALL.target), case.code, case.body, case.retry_after)
    assert type(error) is case.want_class
    assert isinstance(error, RetryableError if case.want_retryable else PermanentError)
    assert isinstance(error, BerthError)
    assert (error.status_code, error.message) == (case.code, case.want_message)
    assert error.retry_after_seconds == case.want_retry_after


def test_the_text_names_the_call_the_status_and_the_servers_words() -> None:
    error = error_from_answer(CALL, 403, status(403, "Forbidden", "you may not"))
    assert str(error) == "cannot evict pods default/web-0: the API server answered 403 Forbidden: you may not"


def test_a_long_page_of_a_proxy_is_cut() -> None:
    assert len(error_from_answer(CALL, 502, b"x" * 100_000).message) == 500


def test_what_the_caller_was_handling_is_not_the_cause_of_a_failed_connection() -> None:
    error = failed_connection_while_handling(PermanentError("the lease was lost"))
    assert isinstance(error, UntrustedServerError)
    assert error.message == "certificate verify failed"


def failed_connection_while_handling(handled: Exception) -> UnreachableError:
    try:
        raise handled
    except type(handled):
        try:
            raise ssl.SSLCertVerificationError(1, "certificate verify failed")
        except ssl.SSLError as refusal:
            return error_from_transport(CALL, "https://localhost", SSLError(refusal))


def test_of_a_pool_that_another_thread_has_closed_nothing_was_sent() -> None:
    closed = ClosedPoolError(HTTPConnectionPool("localhost"), "Pool is closed.")
    assert not error_from_transport(CALL, "http://localhost", closed).acted


def test_an_answer_that_cannot_be_unpacked_has_the_words_of_zlib() -> None:
    refusal = zlib.error("Error -3 while decompressing data: incorrect header check")
    error = error_from_transport(CALL, "https://localhost", DecodeError("failed to decode it", refusal))
    assert error.message == str(refusal)


def test_no_class_is_both_worth_repeating_and_not() -> None:
    classes = [KubeError]
    for one in classes:
        classes.extend(one.__subclasses__())
    assert len(classes) > 15
    for one in classes[1:]:
        assert issubclass(one, RetryableError) != issubclass(one, PermanentError), one
