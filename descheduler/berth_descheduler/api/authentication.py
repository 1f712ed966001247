"""Who sends a request, and what they may do.

The API server answers both, and its answers are cached for seconds. A token is never stored, logged or repeated.
"""

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from berth_core import BerthError, Clock
from berth_descheduler import telemetry
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.problems import ProblemError, ProblemKind, unavailable
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.api.ttl_cache import TtlCache
from berth_kube import Access, KubeClient, Subject, review_access, review_token

_LOG = structlog.get_logger(__name__)


_TOKEN: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)

_CHALLENGE: Final = 'Bearer realm="berth-descheduler"'
_HOW: Final = 'expected the header "Authorization: Bearer TOKEN" with a token that the cluster knows'


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a review; `subject` is set for a valid token."""

    good: bool
    subject: Subject | None = None


class Authority:
    """Reviews tokens and rights, for one event loop; without an answer from the API server it denies."""

    def __init__(self, client: KubeClient, clock: Clock, workers: Workers, settings: RestSettings) -> None:
        self._client = client
        self._workers = workers
        self._audiences = settings.audiences
        self._times = settings.times
        # Tokens are cached by keyed hashes under a random key, as in the API server's own cache
        # (cached_token_authenticator.go): what is in memory is no token, and its keys cannot be chosen to collide.
        self._secret = secrets.token_bytes(32)
        self._subjects: TtlCache[bytes, _Answer] = TtlCache(clock, settings.limits.remembered)
        self._callers: OrderedDict[bytes, None] = OrderedDict()
        """Tokens that the last review accepted; rights are reviewed all the same."""
        self._remembered = settings.limits.remembered
        self._rights: TtlCache[tuple[Subject, Access], _Answer] = TtlCache(clock, settings.limits.remembered)

    def is_caller(self, headers: Sequence[str]) -> bool:
        """Return whether the headers hold a token that was accepted recently; raises `ProblemError`."""
        return self._digest(_read_token(headers)) in self._callers

    async def identify(self, headers: Sequence[str]) -> Subject:
        """Return who sends a request with these Authorization headers; raises `ProblemError`."""
        token = _read_token(headers)
        digest = self._digest(token)

        def review() -> _Answer:
            subject = self.review_subject(token)
            return _Answer(good=subject is not None, subject=subject)

        answer = await self._subjects.answer(digest, self._denying_on_failure(review), self._seconds)
        self._note(digest, known=answer.subject is not None)
        if answer.subject is None:
            raise _unauthenticated("the cluster does not know this token for this service, or it has expired")
        return answer.subject

    def review_subject(self, token: str) -> Subject | None:
        """Return whose token this is, None for one of no caller; raises a `KubeError`. It runs in a worker."""
        return review_token(self._client, token, self._audiences)

    def review_right(self, subject: Subject, access: Access) -> bool:
        """Return whether a subject has a right; raises a `KubeError`. It runs in a worker."""
        return review_access(self._client, subject, access)

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), hashlib.sha256)

    def _note(self, digest: bytes, *, known: bool) -> None:
        """Remember accepted tokens, apart from the many tokens that anyone may make up."""
        self._callers.pop(digest, None)
        if known:
            self._callers[digest] = None
        if len(self._callers) > self._remembered:
            self._callers.popitem(last=False)

    async def require(self, subject: Subject, access: Access) -> None:
        """Raise `ProblemError` unless the subject has the right."""

        def review() -> _Answer:
            return _Answer(good=self.review_right(subject, access))

        answer = await self._rights.answer((subject, access), self._denying_on_failure(review), self._seconds)
        if not answer.good:
            raise ProblemError(ProblemKind.FORBIDDEN, f"{subject.user} has no right to {access}, which this needs")

    def _denying_on_failure(self, review: Callable[[], _Answer]) -> Callable[[], Awaitable[_Answer]]:
        """Return a review that raises `ProblemError` where the API server does not answer."""

        async def ask() -> _Answer:
            try:
                return await self._workers.run(review)
            except BerthError as error:
                # The server's message may quote the token.
                _LOG.error(telemetry.REVIEW_FAILED, **{telemetry.KEY_ERROR: type(error).__name__})
                raise unavailable("the cluster does not say who is asking and what they may do") from error

        return ask

    def _seconds(self, answer: _Answer) -> float:
        return self._times.identity_seconds if answer.good else self._times.rejected_seconds


def _read_token(headers: Sequence[str]) -> str:
    if not headers:
        raise _unauthenticated(f"the header Authorization is missing; {_HOW}")
    # A proxy in front may have looked at the one and this service at the other.
    if len(headers) > 1:
        raise _unauthenticated(f"there are {len(headers)} headers Authorization; {_HOW}")
    match = _TOKEN.fullmatch(headers[0].strip())
    if match is None:
        raise _unauthenticated(f"the header Authorization holds no bearer token; {_HOW}")
    return match[1]


def _unauthenticated(detail: str) -> ProblemError:
    return ProblemError(ProblemKind.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": _CHALLENGE})
