"""The paths, their parameters, what they answer, and the rights that each needs."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field

from berth_core import VALID, Clock, DeschedulerPolicy, MigrationPlan, Node, PlanPhase, RunMode, Snapshot, SnapshotKind
from berth_descheduler.api.admission import Authority, RequestContext
from berth_descheduler.api.concurrency import TtlCache, Workers
from berth_descheduler.api.openapi import answers
from berth_descheduler.api.plan_stream import MEDIA_TYPE, EventStream, PlanFeeds, StreamContext, stream_events
from berth_descheduler.api.problems import FieldFault, ProblemError, ProblemKind, fault, invalid
from berth_descheduler.api.schemas import (
    LONGEST_NAME,
    NAME_PATTERN,
    DrainRequest,
    RequestedDrain,
    RequestedRun,
    RunRequest,
    StreamedEvent,
    describe_drain,
    describe_request,
)
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.migration.plans.requests import abort, approve, request_drain, request_run
from berth_descheduler.planner import CapacityShape, QueueCapacity, measure_queues, read_shape, report_capacity
from berth_descheduler.report import (
    Capacity,
    ListedPlan,
    PlanDocument,
    PlanHead,
    PlanList,
    PolicyList,
    QueueList,
    describe_capacity,
    describe_queues,
    describe_stored_plan,
    list_plan,
    list_policies,
)
from berth_descheduler.snapshots import read_capacity
from berth_kube import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NODES,
    PODS,
    QUEUES,
    VOLCANO_QUEUES,
    Access,
    KubeClient,
    NotFoundError,
    Subject,
)

# --- answers ---------------------------------------------------------------------------------------------------------
# Blocking reads of plans, policies, queues and fragmentation.

_PLANS_PER_PAGE: Final = 20
"""A plan may take a megabyte, of which a list keeps little."""


def read_plans(
    client: KubeClient, *, policy: str | None, phase: PlanPhase | None, limit: int, before: str | None = None
) -> PlanList:
    """Return the newest plans, of a policy and in a phase if given; `before` is the `continue` of an earlier answer."""
    last = None if before is None else tuple(before.split("/"))
    heads = client.list(MIGRATION_PLANS, type=PlanHead, page_size=_PLANS_PER_PAGE).items
    found = [head for head in heads if policy in (None, head.spec.policy) and phase in (None, head.phase)]
    found = sorted((head for head in found if last is None or _position(head) < last), key=_position, reverse=True)
    left = max(0, len(found) - limit)
    go_on = "/".join(_position(found[limit - 1])) if left else ""
    return PlanList(items=tuple(map(list_plan, found[:limit])), remaining=left, go_on=go_on)


def _position(head: PlanHead) -> tuple[str, str]:
    """Return a plan's place in the list, which stays whatever is added and deleted."""
    return head.metadata.creation_timestamp or "", head.metadata.name


def read_plan(client: KubeClient, name: str) -> PlanDocument:
    return describe_stored_plan(client.get(MIGRATION_PLANS, name, type=MigrationPlan))


def read_policies(client: KubeClient) -> PolicyList:
    return list_policies(client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items)


def read_policy(client: KubeClient, name: str) -> DeschedulerPolicy:
    return client.get(DESCHEDULER_POLICIES, name, type=DeschedulerPolicy)


@dataclass(frozen=True)
class Measurement:
    """The nodes and pods of the cluster at one time."""

    snapshot: Snapshot
    at: datetime


def measure(client: KubeClient, clock: Clock, own_namespace: str) -> Measurement:
    return Measurement(read_capacity(client).within(own_namespace), clock.now())


def describe_fragmentation(measured: Measurement, shapes: tuple[CapacityShape, ...]) -> Capacity:
    return describe_capacity(report_capacity(measured.snapshot, shapes), measured.at)


@dataclass(frozen=True)
class MeasuredQueues:
    """What is guaranteed, as it was measured at one time."""

    queues: tuple[QueueCapacity, ...]
    unread: frozenset[SnapshotKind]
    at: datetime


def measure_guarantees(measured: Measurement) -> MeasuredQueues:
    read = measured.snapshot
    return MeasuredQueues(measure_queues(read), frozenset(read.unread), measured.at)


# --- fragmentation ---------------------------------------------------------------------------------------------------

_ANSWERS: Final = 64


class FragmentationQueries:
    """Reads the cluster at most once per `capacity_seconds`; counting has its own thread."""

    def __init__(self, client: KubeClient, clock: Clock, settings: RestSettings) -> None:
        self._client = client
        self._clock = clock
        self._seconds = settings.times.capacity_seconds
        self._own_namespace = settings.namespace
        self._workers = Workers(1, settings.times.request_seconds)
        self._measured: TtlCache[str, Measurement] = TtlCache(clock, 1)
        self._queues: TtlCache[str, MeasuredQueues] = TtlCache(clock, 1)
        self._counted: TtlCache[tuple[str, ...], Capacity] = TtlCache(clock, _ANSWERS)

    async def fragmentation(self, shapes: tuple[CapacityShape, ...]) -> Capacity:
        key = tuple(shape.name for shape in shapes)
        return await self._counted.answer(key, lambda: self._count(shapes), lambda _: self._seconds)

    async def queues(self, hidden: AbstractSet[SnapshotKind]) -> QueueList:
        """Return the guarantees of the queues of kinds that are not hidden from the caller."""
        found = await self._queues.answer("", self._measure_queues, lambda _: self._seconds)
        return describe_queues(found.queues, found.unread | hidden, found.at)

    async def _measure_queues(self) -> MeasuredQueues:
        measured = await self._measured.answer("", self._measure, lambda _: self._seconds)
        return await self._workers.run(lambda: measure_guarantees(measured))

    async def _count(self, shapes: tuple[CapacityShape, ...]) -> Capacity:
        measured = await self._measured.answer("", self._measure, lambda _: self._seconds)
        return await self._workers.run(lambda: describe_fragmentation(measured, shapes))

    async def _measure(self) -> Measurement:
        found = await self._workers.run(lambda: measure(self._client, self._clock, self._own_namespace))
        # By far the largest object here, and useless once it has expired.
        asyncio.get_running_loop().call_later(self._seconds, self._measured.forget, "")
        return found

    def close(self) -> None:
        self._workers.close()


# --- parameters ------------------------------------------------------------------------------------------------------
# Parameters of requests: names, shapes, keys, and the body of a request for a run.

MOST_SHAPES: Final = 8
MOST_PLANS: Final = 500
LONGEST_SHAPE: Final = 300

_RESOURCE: Final = r"(?:[a-z0-9](?:[-a-z0-9.]{0,60}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,60}[A-Za-z0-9])?"
_SMALL: Final = r"0\.[0-9]{0,2}[1-9]"


def _number(digits: int) -> str:
    """Return a pattern for positive numbers with so many integer digits."""
    return rf"(?:[1-9][0-9]{{0,{digits - 1}}}(?:\.[0-9]{{1,3}})?|{_SMALL})"


# Bounded by what can be planned with (`berth_core.resources.MOST_AMOUNT`), which counts cores in thousandths.
_CORES: Final = rf"(?:{_number(9)}m?|{_number(8)}(?:k|Ki)|{_number(5)}Mi?|{_number(2)}Gi?)"
_TERA: Final = rf"(?:(?:[1-9][0-9]?|[1-4][0-9]{{2}})(?:\.[0-9]{{1,3}})?|{_SMALL})"
_QUANTITY: Final = rf"(?:{_number(9)}(?:m|k|Ki)?|{_number(8)}Mi?|{_number(5)}Gi?|{_TERA}Ti?)"
_AMOUNT: Final = rf"(?:cpu={_CORES}|(?!(?:pods|count|cpu)=){_RESOURCE}={_QUANTITY})"
SHAPE_PATTERN: Final = rf"^(?!(?:.*,)?([^,=]+)=[^,]*,(?:.*,)?\1=){_AMOUNT}(?:,{_AMOUNT}){{0,7}}$"
"""Amounts of different resources; pod slots are counted anyway."""

_SHAPE: Final = re.compile(SHAPE_PATTERN)
_SHAPE_EXPECTED: Final = "amounts of different resources such as cpu=4,memory=8Gi"
KEY_PATTERN: Final = r"^[!-~]{1,200}$"
POSITION_PATTERN: Final = r"^[0-9TZ:.-]{0,40}/[a-z0-9.-]{1,253}$"
"""Of a plan in a list: when it was created, and its name."""

PlanName = Annotated[
    str, Path(max_length=LONGEST_NAME, pattern=NAME_PATTERN, description="The plan's name.", examples=["plan-1"])
]
_ShapeText = Annotated[
    str,
    # `read_shapes` checks it: the pattern uses lookahead, which pydantic does not support.
    Field(json_schema_extra={"maxLength": LONGEST_SHAPE, "pattern": SHAPE_PATTERN}),
]
Shapes = Annotated[
    list[_ShapeText] | None,
    Query(
        alias="shape",
        max_length=MOST_SHAPES,
        description="What a pod requests, such as `cpu=4,memory=8Gi`; may be repeated. Default: what most pending "
        "pods request, else the largest pods that controllers create.",
        examples=[["cpu=4,memory=8Gi"]],
    ),
]
PolicyFilter = Annotated[
    str | None,
    Query(
        alias="policy",
        max_length=LONGEST_NAME,
        pattern=NAME_PATTERN,
        description="Only plans of the policy of this name.",
    ),
]
PhaseFilter = Annotated[PlanPhase | None, Query(alias="phase", description="Only plans in this phase.")]
PlanLimit = Annotated[int, Query(alias="limit", ge=1, le=MOST_PLANS, description="The most plans to return.")]
PlansBefore = Annotated[
    str | None,
    Query(
        alias="continue",
        pattern=POSITION_PATTERN,
        description="The `continue` of the answer before: the plans after it.",
        examples=["2026-11-20T04:00:00Z/plan-1"],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_PATTERN,
        description="A repeated request with the same key and caller returns the plan of the first one, as long as "
        "that plan exists. A different request with the key is a conflict.",
    ),
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=100,
        description="The id of the last event received. The stream resumes after it or, if that is no longer known, "
        "starts with the whole plan. 204 if the plan is over and nothing was missed.",
    ),
]


def read_shapes(texts: list[str]) -> tuple[CapacityShape, ...]:
    """Return the shapes of a request; raises `ProblemError` naming each bad one."""
    faults: list[FieldFault] = []
    shapes: list[CapacityShape] = []
    for index, text in enumerate(texts):
        if len(text) <= LONGEST_SHAPE and _SHAPE.fullmatch(text):
            shapes.append(read_shape(text))
        else:
            faults.append(fault(f"query.shape[{index}]", text, _SHAPE_EXPECTED))
    if faults:
        raise invalid(faults)
    return tuple(shapes)


def refuse_unknown(given: dict[str, Any], known: set[str]) -> None:
    """Raise `ProblemError` if a query has unknown parameters."""
    expected = f"one of {', '.join(sorted(known))}" if known else "no parameter"
    faults = [fault(f"query.{name[:80]}", given[name], expected) for name in given if name not in known]
    if faults:
        raise invalid(faults)


T = TypeVar("T")

_PLANS_SHOWN: Final = 100


@dataclass(frozen=True)
class ApiContext:
    """What the paths share."""

    client: KubeClient
    clock: Clock
    workers: Workers
    authority: Authority
    capacity: FragmentationQueries
    feeds: PlanFeeds
    settings: RestSettings

    async def admit(self, request: Request, *needed: Access) -> Subject:
        """Return the caller, if it has all rights needed; raises `ProblemError`."""
        context: RequestContext = request.state.context
        subject = context.subject
        if subject is None:  # only protected paths call this
            raise ProblemError(ProblemKind.UNAUTHENTICATED, "the caller is unknown")
        for access in needed:
            await self.authority.require(subject, access)
        return subject

    async def hidden_queues(self, request: Request) -> frozenset[SnapshotKind]:
        """Return the kinds of queues that the caller may not list; raises `ProblemError` if it may list none."""
        refused: dict[SnapshotKind, ProblemError] = {}
        kinds = {SnapshotKind.VOLCANO_QUEUES: VOLCANO_QUEUES, SnapshotKind.QUEUES: QUEUES}
        for kind, resource in kinds.items():
            try:
                await self.admit(request, Access("list", resource))
            except ProblemError as error:
                if error.kind is not ProblemKind.FORBIDDEN:
                    raise
                refused[kind] = error
        if len(refused) == len(kinds):
            raise refused[SnapshotKind.VOLCANO_QUEUES]
        return frozenset(refused)


def build_routes(api: ApiContext) -> APIRouter:
    # An operation is called as its function is, which generated clients call it, too.
    router = APIRouter(prefix="/v1", generate_unique_id_function=lambda route: route.name)
    _add_runs(router, api)
    _add_drains(router, api)
    _add_plans(router, api)
    _add_decisions(router, api)
    _add_events(router, api)
    _add_overviews(router, api)
    return router


def _add_runs(router: APIRouter, api: ApiContext) -> None:
    @router.post(
        "/runs",
        summary="Request a run of a policy",
        description="Needs the right to create migrationplans and, for a plan that is carried out without approval "
        "(mode Auto), to patch them. The run starts when earlier ones are over; follow its plan to see.",
        status_code=HTTPStatus.ACCEPTED,
        tags=["runs"],
        **answers(RequestedRun, "The run is requested; Location names its plan.", location=True, conflict=True),
    )
    async def ask_for_run(request: Request, body: RunRequest, key: IdempotencyKey = None) -> Response:
        refuse_unknown(dict(request.query_params), set())
        subject = await api.admit(request, Access("create", MIGRATION_PLANS))
        with _naming("body.policy", body.policy, "policy"):
            policy = await api.workers.run(lambda: read_policy(api.client, body.policy))
        _require_valid(policy)
        mode = RunMode.PLAN if body.dry_run else RunMode(body.mode or policy.spec.mode)
        if mode is RunMode.AUTO:
            await api.admit(request, Access("patch", MIGRATION_PLANS))
        plan = await api.workers.run(
            lambda: request_run(
                api.client, api.clock, body.policy, mode=mode, requested_by=subject.user, idempotency_key=key or ""
            )
        )
        headers = {"Location": f"/v1/plans/{plan.metadata.name}"}
        return _answer(describe_request(plan), HTTPStatus.ACCEPTED, headers)


def _add_drains(router: APIRouter, api: ApiContext) -> None:
    @router.post(
        "/drains",
        summary="Request a drain of cordoned nodes",
        description="Needs the rights to create migrationplans and to patch nodes and, for a plan that is carried out "
        "without approval (mode Auto), to patch migrationplans. Cordon the nodes first, unless it is for looking at "
        "only. The drain starts when earlier runs are over; follow its plan to see.",
        status_code=HTTPStatus.ACCEPTED,
        tags=["runs"],
        **answers(RequestedDrain, "The drain is requested; Location names its plan.", location=True, conflict=True),
    )
    async def ask_for_drain(request: Request, body: DrainRequest, key: IdempotencyKey = None) -> Response:
        refuse_unknown(dict(request.query_params), set())
        mode, drain = body.run_mode, body.drain
        twice = [name for index, name in enumerate(body.nodes) if name in body.nodes[:index]]
        if twice:
            raise invalid([fault("body.nodes", twice[0], "each node once")])
        subject = await api.admit(request, Access("create", MIGRATION_PLANS), Access("patch", NODES))
        if mode is RunMode.AUTO:
            await api.admit(request, Access("patch", MIGRATION_PLANS))
        await api.workers.run(lambda: _require_nodes(api.client, body.nodes, cordoned=mode is not RunMode.PLAN))
        plan = await api.workers.run(
            lambda: request_drain(
                api.client, api.clock, drain.objective, mode=mode, requested_by=subject.user, idempotency_key=key or ""
            )
        )
        headers = {"Location": f"/v1/plans/{plan.metadata.name}"}
        return _answer(describe_drain(plan), HTTPStatus.ACCEPTED, headers)


def _require_nodes(client: KubeClient, names: list[str], *, cordoned: bool) -> None:
    """Raise `ProblemError` for nodes that are not there, or that still take pods."""
    faults: dict[str, FieldFault] = {}
    for index, name in enumerate(names):
        with _naming(f"body.nodes[{index}]", name, "node"):
            node = client.get(NODES, name, type=Node)
        if cordoned and not node.spec.unschedulable:
            faults[name] = fault(f"body.nodes[{index}]", name, "a node that is cordoned")
    if faults:
        message = f"not cordoned: run kubectl cordon {' '.join(faults)}"
        raise ProblemError(ProblemKind.CONFLICT, message, faults=list(faults.values()))


def _require_valid(policy: DeschedulerPolicy) -> None:
    valid = policy.condition(VALID)
    current = policy.status.observed_generation in (None, policy.metadata.generation)
    if current and valid is not None and valid.status == "False":
        text = f"policy {policy.metadata.name} cannot be run: {valid.message}"
        raise ProblemError(
            ProblemKind.CONFLICT,
            text,
            faults=[fault("body.policy", policy.metadata.name, "a policy whose condition Valid is not False")],
        )


def _add_plans(router: APIRouter, api: ApiContext) -> None:
    @router.get(
        "/plans",
        summary="List plans, the newest first",
        description="Needs the right to list migrationplans. The plans come without their moves.",
        tags=["plans"],
        **answers(PlanList, "The plans.", missing=False),
    )
    async def list_plans(
        request: Request,
        policy: PolicyFilter = None,
        phase: PhaseFilter = None,
        limit: PlanLimit = _PLANS_SHOWN,
        before: PlansBefore = None,
    ) -> Response:
        refuse_unknown(dict(request.query_params), {"policy", "phase", "limit", "continue"})
        await api.admit(request, Access("list", MIGRATION_PLANS))
        which: dict[str, Any] = {"policy": policy, "phase": phase, "limit": limit, "before": before}
        return _answer(await api.workers.run(lambda: read_plans(api.client, **which)))

    @router.get(
        "/plans/{name}",
        summary="Show a plan with its moves",
        description="Needs the right to get the migrationplan.",
        tags=["plans"],
        **answers(PlanDocument, "The plan."),
    )
    async def show_plan(request: Request, name: PlanName) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("get", MIGRATION_PLANS, name))
        with _naming("path.name", name, "plan"):
            return _answer(await api.workers.run(lambda: read_plan(api.client, name)))


def _add_decisions(router: APIRouter, api: ApiContext) -> None:
    @router.post(
        "/plans/{name}/approve",
        summary="Approve a plan",
        description="Needs the right to patch the migrationplan. Cannot be undone; doing it again changes nothing.",
        status_code=HTTPStatus.ACCEPTED,
        tags=["plans"],
        **answers(ListedPlan, "The plan is approved and will be carried out.", conflict=True),
    )
    async def approve_plan(request: Request, name: PlanName) -> Response:
        return await _decide(api, request, name, approve)

    @router.post(
        "/plans/{name}/abort",
        summary="Bring a plan to a safe end",
        description="Needs the right to patch the migrationplan. Nothing new is started, what is held is released, and "
        "evicted pods are awaited. Cannot be undone; aborting again changes nothing.",
        status_code=HTTPStatus.ACCEPTED,
        tags=["plans"],
        **answers(ListedPlan, "The plan is being aborted.", conflict=True),
    )
    async def abort_plan(request: Request, name: PlanName) -> Response:
        return await _decide(api, request, name, abort)


async def _decide(api: ApiContext, request: Request, name: str, decide: Callable[..., MigrationPlan]) -> Response:
    refuse_unknown(dict(request.query_params), set())
    subject = await api.admit(request, Access("patch", MIGRATION_PLANS, name))
    with _naming("path.name", name, "plan"):
        plan = await api.workers.run(lambda: decide(api.client, name, asked_by=subject.user))
    return _answer(list_plan(plan), HTTPStatus.ACCEPTED)


def _add_events(router: APIRouter, api: ApiContext) -> None:
    @router.get(
        "/plans/{name}/events",
        summary="Follow a plan",
        description="Needs the right to watch the migrationplan. Server-sent events with JSON data: `plan` (a whole "
        "plan, as GET /v1/plans/{name} answers) comes first, then `move` and `phase` with each change, or `deleted`. "
        "The stream ends when the plan is over and, with an event `problem` or a comment, when it cannot go on.",
        tags=["plans"],
        **answers(StreamedEvent, "The events.", media_type=MEDIA_TYPE, nothing=True),
    )
    async def follow_plan(request: Request, name: PlanName, last_id: LastEventId = None) -> Response:
        refuse_unknown(dict(request.query_params), set())
        needed = Access("watch", MIGRATION_PLANS, name)
        await api.admit(request, needed)
        context: RequestContext = request.state.context
        with ExitStack() as leaving:
            feed = leaving.enter_context(api.feeds.following(name))
            await feed.first_look()
            if feed.plan is None or feed.deleted:
                raise _no_such("path.name", name, "plan")
            if feed.over and last_id == feed.plan.metadata.resource_version:
                return Response(status_code=HTTPStatus.NO_CONTENT)
            context.become_stream()
            stream = StreamContext(api.feeds, api.clock, api.settings.times, _asking_again(api, context, needed))
            ending = leaving.pop_all()
            return EventStream(stream_events(feed, last_id or "", stream), ending.close)
        raise AssertionError("the stack passes every error on")


def _asking_again(api: ApiContext, context: RequestContext, needed: Access) -> Callable[[], Awaitable[None]]:
    """Return a check whether the reader still has the right."""

    async def ask() -> None:
        subject = await api.authority.identify(context.authorization)
        await api.authority.require(subject, needed)

    return ask


@contextmanager
def _naming(field: str, name: str, what: str) -> Iterator[None]:
    """Turn `NotFoundError` of the block into a problem that names the field."""
    try:
        yield
    except NotFoundError as error:
        raise _no_such(field, name, what) from error


def _no_such(field: str, name: str, what: str) -> ProblemError:
    found = fault(field, name, f"the name of a {what} that exists")
    return ProblemError(ProblemKind.NOT_FOUND, f"there is no {what} {name}", faults=[found])


def _add_overviews(router: APIRouter, api: ApiContext) -> None:
    @router.get(
        "/fragmentation",
        summary="Count how many pods of some shapes still fit",
        description="Needs the rights to list nodes and pods. Says how much free capacity each shape cannot use, and "
        "why. An answer may be a few seconds old.",
        tags=["cluster"],
        **answers(Capacity, "How fragmented the cluster is.", missing=False),
    )
    async def show_fragmentation(request: Request, shapes: Shapes = None) -> Response:
        refuse_unknown(dict(request.query_params), {"shape"})
        asked = read_shapes(shapes or [])
        await api.admit(request, Access("list", NODES), Access("list", PODS))
        return _answer(await api.capacity.fragmentation(asked))

    @router.get(
        "/queues",
        summary="Say how much of the guarantees of queues is placeable",
        description="Needs the rights to list nodes, pods, and queues of Volcano or of Berth; those of the other kind "
        "are left out otherwise. Lists the queues with a guarantee, what is left of it, and what of that pods of the "
        "queue's own shapes could use now. An answer may be a few seconds old.",
        tags=["cluster"],
        **answers(QueueList, "The queues.", missing=False),
    )
    async def list_queues(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("list", NODES), Access("list", PODS))
        hidden = await api.hidden_queues(request)
        return _answer(await api.capacity.queues(hidden))

    @router.get(
        "/policies",
        summary="List policies by name",
        description="Needs the right to list deschedulerpolicies.",
        tags=["cluster"],
        **answers(PolicyList, "The policies.", missing=False),
    )
    async def list_policies(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("list", DESCHEDULER_POLICIES))
        return _answer(await api.workers.run(lambda: read_policies(api.client)))


def _answer(
    document: msgspec.Struct, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(document), status, headers, media_type="application/json")
