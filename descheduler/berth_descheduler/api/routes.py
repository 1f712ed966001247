"""The paths, what they answer, and the rights that each needs."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from berth_core import VALID, Clock, DeschedulerPolicy, MigrationPlan, Node, RunMode, SnapshotKind
from berth_descheduler.api.authentication import Authority
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.name_secret import read_name_secret
from berth_descheduler.api.openapi import answers
from berth_descheduler.api.parameters import (
    IdempotencyKey,
    IfMatch,
    LastEventId,
    PhaseFilter,
    PlanLimit,
    PlanName,
    PlansBefore,
    PolicyFilter,
    Shapes,
    read_shapes,
    read_version,
    refuse_unknown,
)
from berth_descheduler.api.plan_stream import MEDIA_TYPE, EventStream, PlanFeeds, StreamContext, stream_events
from berth_descheduler.api.problems import FieldFault, ProblemError, ProblemKind, fault, invalid
from berth_descheduler.api.reads import (
    FragmentationQueries,
    read_held_capacity,
    read_plan,
    read_plans,
    read_policies,
    read_policy,
)
from berth_descheduler.api.request_guard import RequestContext
from berth_descheduler.api.schemas import (
    ApprovalRequest,
    DrainRequest,
    RequestedDrain,
    RequestedRun,
    RunRequest,
    StreamedEvent,
    describe_drain,
    describe_request,
)
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.migration.plans.looked_at import LookedAt
from berth_descheduler.migration.plans.requests import abort, approve, request_drain, request_run
from berth_descheduler.report import (
    Capacity,
    CapacityPoints,
    HeldCapacityList,
    ListedPlan,
    NodeList,
    PlanDocument,
    PlanList,
    PolicyList,
    QueueList,
    list_plan,
)
from berth_kube import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NODES,
    PODS,
    QUEUES,
    RESERVATIONS,
    VOLCANO_QUEUES,
    Access,
    KubeClient,
    NotFoundError,
    Subject,
)

T = TypeVar("T")

_PLANS_SHOWN: Final = 100
_WITHOUT_BODY: Final = ApprovalRequest()
"""Of an approval whose header says what was looked at."""


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
        """Return what the name of a plan with a key depends on; raises `ProblemError` while it is not there."""
        return read_name_secret(self.settings.key) if idempotency_key else b""

    async def hidden_queues(self, request: Request) -> frozenset[SnapshotKind]:
        """Return the kinds of queues that the caller may not list; raises `ProblemError` if it may list none."""
        problems_by_kind: dict[SnapshotKind, ProblemError] = {}
        kinds = {SnapshotKind.VOLCANO_QUEUES: VOLCANO_QUEUES, SnapshotKind.QUEUES: QUEUES}
        for kind, resource in kinds.items():
            try:
                await self.admit(request, Access("list", resource))
            except ProblemError as error:
                if error.kind is not ProblemKind.FORBIDDEN:
                    raise
                problems_by_kind[kind] = error
        if len(problems_by_kind) == len(kinds):
            raise problems_by_kind[SnapshotKind.VOLCANO_QUEUES]
        return frozenset(problems_by_kind)


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
                api.client,
                api.clock,
                body.policy,
                mode=mode,
                requested_by=subject.user,
                idempotency_key=key or "",
                name_secret=api.name_secret(key),
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
        repeated_nodes = [node for index, node in enumerate(body.nodes) if node in body.nodes[:index]]
        if repeated_nodes:
            raise invalid([fault("body.nodes", repeated_nodes[0], "each node once")])
        subject = await api.admit(request, Access("create", MIGRATION_PLANS), Access("patch", NODES))
        if mode is RunMode.AUTO:
            await api.admit(request, Access("patch", MIGRATION_PLANS))
        await api.workers.run(lambda: _require_nodes(api.client, body.nodes, cordoned=mode is not RunMode.PLAN))
        plan = await api.workers.run(
            lambda: request_drain(
                api.client,
                api.clock,
                drain.objective,
                mode=mode,
                requested_by=subject.user,
                idempotency_key=key or "",
                name_secret=api.name_secret(key),
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
    is_observed = policy.status.observed_generation in (None, policy.metadata.generation)
    if is_observed and valid is not None and valid.status == "False":
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
        list_arguments: dict[str, Any] = {"policy": policy, "phase": phase, "limit": limit, "before": before}
        return _answer(await api.workers.run(lambda: read_plans(api.client, **list_arguments)))

    @router.get(
        "/plans/{name}",
        summary="Show a plan with its moves",
        description="Needs the right to get the migrationplan.",
        tags=["plans"],
        **answers(PlanDocument, "The plan.", version=True),
    )
    async def show_plan(request: Request, name: PlanName) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("get", MIGRATION_PLANS, name))
        with _naming("path.name", name, "plan"):
            plan = await api.workers.run(lambda: read_plan(api.client, name))
        return _answer(plan, headers={"ETag": f'"{plan.version}"'})


def _add_decisions(router: APIRouter, api: ApiContext) -> None:
    @router.post(
        "/plans/{name}/approve",
        summary="Approve a plan",
        description="Needs the right to patch the migrationplan. The header If-Match or the body says which plan was "
        "looked at; where another one has its name by now, or it has changed, the answer is 409 and says what changed. "
        "Cannot be undone; doing it again changes nothing.",
        status_code=HTTPStatus.ACCEPTED,
        tags=["plans"],
        **answers(ListedPlan, "The plan is approved and will be carried out.", conflict=True, bound=True),
    )
    async def approve_plan(
        request: Request, name: PlanName, tag: IfMatch = None, body: ApprovalRequest = _WITHOUT_BODY
    ) -> Response:
        looked_at = LookedAt(uid=body.uid, version=read_version(tag, body.version))
        return await _decide(api, request, name, partial(approve, looked_at=looked_at), required=looked_at)

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


async def _decide(
    api: ApiContext,
    request: Request,
    name: str,
    decide: Callable[..., MigrationPlan],
    *,
    required: LookedAt | None = None,
) -> Response:
    """Answer a decision; raises `ProblemError` where it says of no plan that it was looked at and has to."""
    refuse_unknown(dict(request.query_params), set())
    subject = await api.admit(request, Access("patch", MIGRATION_PLANS, name))
    if required == LookedAt():
        raise ProblemError(
            ProblemKind.PRECONDITION_REQUIRED,
            f"the request does not say which version of plan {name} was looked at; expected it as GET /v1/plans/{name} "
            'answers it, in the header If-Match or as {"version": ...} in the body',
            faults=[fault("header.If-Match", None, "the version of the plan that was looked at")],
        )
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
        access_needed = Access("watch", MIGRATION_PLANS, name)
        await api.admit(request, access_needed)
        context: RequestContext = request.state.context
        with ExitStack() as stack:
            feed = stack.enter_context(api.feeds.following(name))
            await feed.first_look()
            if feed.plan is None or feed.deleted:
                raise _no_such("path.name", name, "plan")
            if feed.over and last_id == feed.plan.metadata.resource_version:
                return Response(status_code=HTTPStatus.NO_CONTENT)
            context.become_stream()
            stream = StreamContext(api.feeds, api.clock, api.settings.times, _asking_again(api, context, access_needed))
            cleanup = stack.pop_all()
            return EventStream(stream_events(feed, last_id or "", stream), cleanup.close)
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
    unknown_name = fault(field, name, f"the name of a {what} that exists")
    return ProblemError(ProblemKind.NOT_FOUND, f"there is no {what} {name}", faults=[unknown_name])


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
        pod_shapes = read_shapes(shapes or [])
        await api.admit(request, Access("list", NODES), Access("list", PODS))
        return _answer(await api.capacity.fragmentation(pod_shapes))

    @router.get(
        "/fragmentation/history",
        summary="Say how fragmented the cluster was over time",
        description="Needs the rights to list nodes and pods. The newest 288 measurements since this replica began, "
        "one every five minutes by default (--fragmentation-interval).",
        tags=["cluster"],
        **answers(CapacityPoints, "The measurements, the oldest first.", missing=False),
    )
    async def show_history(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("list", NODES), Access("list", PODS))
        return _answer(CapacityPoints(items=api.history.points(), prometheus=api.settings.prometheus_url))

    @router.get(
        "/nodes",
        summary="List nodes by name, with their use and state",
        description="Needs the rights to list nodes and pods. An answer may be a few seconds old.",
        tags=["cluster"],
        **answers(NodeList, "The nodes.", missing=False),
    )
    async def list_nodes(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("list", NODES), Access("list", PODS))
        return _answer(await api.capacity.nodes())

    @router.get(
        "/reservations",
        summary="List what is held, for whom and until when",
        description="Needs the right to list reservations. Those that expire first come first.",
        tags=["cluster"],
        **answers(HeldCapacityList, "The live Reservations.", missing=False),
    )
    async def list_reservations(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("list", RESERVATIONS))
        return _answer(await api.workers.run(lambda: read_held_capacity(api.client)))

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
        hidden_kinds = await api.hidden_queues(request)
        return _answer(await api.capacity.queues(hidden_kinds))

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
