"""What the functions behind the paths share."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from fastapi import Request, Response

from berth_core import Clock
from berth_descheduler.api.authentication import Authority
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.name_secret import read_name_secret
from berth_descheduler.api.plan_feeds import PlanFeeds
from berth_descheduler.api.problems import ProblemError, ProblemKind, fault
from berth_descheduler.api.reads import FragmentationQueries
from berth_descheduler.api.request_limits import Ticket
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.api.trouble_watch import TroubleWatch
from berth_kube import Access, KubeClient, NotFoundError, Subject


@dataclass(slots=True)
class RequestContext:
    """What is known of a request that passed the checks."""

    ticket: Ticket
    deadline: asyncio.Timeout
    subject: Subject | None = None
    authorization: Sequence[str] = ()
    """Kept for streams, which are authorized again and again."""

    def become_stream(self) -> None:
        """Lift the deadline; raises `ProblemError` if too many streams are open."""
        self.ticket.become_stream()
        self.deadline.reschedule(None)


@dataclass(frozen=True)
class ApiContext:
    """What the paths share."""

    client: KubeClient
    clock: Clock
    workers: Workers
    authority: Authority
    capacity: FragmentationQueries
    troubles: TroubleWatch
    feeds: PlanFeeds
    settings: RestSettings
    history: CapacityHistory

    async def admit(self, request: Request, *needed: Access) -> Subject:
        """Return the caller, if it has all rights needed; raises `ProblemError`."""
        context: RequestContext = request.state.context
        subject = context.subject
        if subject is None:  # only protected paths call this
            raise ProblemError(ProblemKind.UNAUTHENTICATED, "the caller is unknown")
        for access in needed:
            await self.authority.require(subject, access)
        return subject

    def name_secret(self, idempotency_key: str | None) -> bytes:
        """Return the secret behind the name of a plan with a key; raises `ProblemError` while it cannot be read."""
        return read_name_secret(self.settings.key) if idempotency_key else b""

    async def missing_rights(self, request: Request, wanted: Iterable[Access]) -> frozenset[Access]:
        """Return the rights of those wanted that the caller lacks; raises `ProblemError` if that cannot be known."""
        missing: set[Access] = set()
        for access in wanted:
            try:
                await self.admit(request, access)
            except ProblemError as error:
                if error.kind is not ProblemKind.FORBIDDEN:
                    raise
                missing.add(access)
        return frozenset(missing)


@contextmanager
def naming(field: str, name: str, kind: str) -> Iterator[None]:
    """Turn a `NotFoundError` of the block into a problem that names the field."""
    try:
        yield
    except NotFoundError as error:
        raise no_such(field, name, kind) from error


def no_such(field: str, name: str, kind: str) -> ProblemError:
    unknown_name = fault(field, name, f"the name of a {kind} that exists")
    return ProblemError(ProblemKind.NOT_FOUND, f"there is no {kind} {name}", faults=[unknown_name])


def answer_with(
    document: msgspec.Struct, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(document), status, headers, media_type="application/json")
