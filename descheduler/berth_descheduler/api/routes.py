"""The paths, what they answer, and the rights that each needs."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request, Response

from berth_core import VALID, DeschedulerPolicy, MigrationPlan, RunMode
from berth_descheduler.api.capability_paths import capability_paths
from berth_descheduler.api.context import ApiContext, RequestContext, answer_with, naming, no_such
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
from berth_descheduler.api.plan_stream import MEDIA_TYPE, EventStream, StreamContext, stream_events
from berth_descheduler.api.problems import ProblemError, ProblemKind, fault
from berth_descheduler.api.reads import read_held_capacity, read_plan, read_plans, read_policies, read_policy
from berth_descheduler.api.schemas import ApprovalRequest, RequestedRun, RunRequest, StreamedEvent, describe_request
from berth_descheduler.doctor import NEEDED_RIGHTS, FindingList, describe_findings, rights_asked_for
from berth_descheduler.migration.plans.looked_at import LookedAt
from berth_descheduler.migration.plans.requests import abort, approve, request_run
from berth_descheduler.report import (
    Capacity,
    CapacityPoints,
    HeldCapacityList,
    ListedPlan,
    NodeList,
    PlanDocument,
    PlanList,
    PolicyList,
    list_plan,
)
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, NODES, PODS, RESERVATIONS, Access

T = TypeVar("T")

_PLANS_SHOWN: Final = 100
_WITHOUT_BODY: Final = ApprovalRequest()
"""The body of an approval whose header names the version that was looked at."""


def build_routes(api: ApiContext) -> APIRouter:
    # An operation has the name of its function, by which generated clients call it.
    router = APIRouter(prefix="/v1", generate_unique_id_function=lambda route: route.name)
    _add_runs(router, api)
    for paths in capability_paths():
        paths.add_to(router, api)
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
        with naming("body.policy", body.policy, "policy"):
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
        return answer_with(describe_request(plan), HTTPStatus.ACCEPTED, headers)


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
        return answer_with(await api.workers.run(lambda: read_plans(api.client, **list_arguments)))

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
        with naming("path.name", name, "plan"):
            plan = await api.workers.run(lambda: read_plan(api.client, name))
        return answer_with(plan, headers={"ETag": f'"{plan.version}"'})


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
    """Answer a decision; raises `ProblemError` where `required` names neither a version nor a uid."""
    refuse_unknown(dict(request.query_params), set())
    subject = await api.admit(request, Access("patch", MIGRATION_PLANS, name))
    if required == LookedAt():
        raise ProblemError(
            ProblemKind.PRECONDITION_REQUIRED,
            f"the request does not say which version of plan {name} was looked at; expected it as GET /v1/plans/{name} "
            'answers it, in the header If-Match or as {"version": ...} in the body',
            faults=[fault("header.If-Match", None, "the version of the plan that was looked at")],
        )
    with naming("path.name", name, "plan"):
        plan = await api.workers.run(lambda: decide(api.client, name, asked_by=subject.user))
    return answer_with(list_plan(plan), HTTPStatus.ACCEPTED)


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
                raise no_such("path.name", name, "plan")
            if feed.over and last_id == feed.plan.metadata.resource_version:
                # The answer at which an EventSource stops to reconnect (HTML standard, "Server-sent events").
                return Response(status_code=HTTPStatus.NO_CONTENT)
            context.become_stream()
            stream = StreamContext(
                api.feeds, api.clock, api.settings.times, _review_of_right(api, context, access_needed)
            )
            cleanup = stack.pop_all()
            return EventStream(stream_events(feed, last_id or "", stream), cleanup.close)
        raise AssertionError("the stack passes every error on")


def _review_of_right(api: ApiContext, context: RequestContext, needed: Access) -> Callable[[], Awaitable[None]]:
    """Return a check that raises `ProblemError` once the reader has lost the right."""

    async def ask() -> None:
        subject = await api.authority.identify(context.authorization)
        await api.authority.require(subject, needed)

    return ask


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
        return answer_with(await api.capacity.fragmentation(pod_shapes))

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
        return answer_with(CapacityPoints(items=api.history.points(), prometheus=api.settings.prometheus_url))

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
        return answer_with(await api.capacity.nodes())

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
        return answer_with(await api.workers.run(lambda: read_held_capacity(api.client)))

    @router.get(
        "/findings",
        summary="List what berth doctor finds, with what to do",
        description="Needs the rights to list nodes, pods, reservations and migrationplans. What needs a further right "
        "that the caller or Berth itself lacks is left out, and missingRights names it. A finding with mayPass may "
        "still pass by itself: it was first seen just now, and Berth has time to mend it as long as the looks go on. "
        "An answer may be some seconds old.",
        tags=["cluster"],
        **answers(FindingList, "The findings, the cause of others first.", missing=False),
    )
    async def list_findings(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, *NEEDED_RIGHTS)
        watched = await api.troubles.watched()
        wanted = rights_asked_for(watched.may_pass_by_violation)
        missing = await api.missing_rights(request, wanted) | watched.refused
        namespace = api.settings.namespace
        return answer_with(describe_findings(watched.may_pass_by_violation, missing, namespace, watched.at))

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
        return answer_with(await api.workers.run(lambda: read_policies(api.client)))
