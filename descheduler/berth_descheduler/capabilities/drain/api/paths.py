"""The path by which drains are requested."""

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response

from berth_core import Node, RunMode
from berth_descheduler.api.capability_paths import CapabilityPaths
from berth_descheduler.api.context import ApiContext, answer_with, naming
from berth_descheduler.api.openapi import answers
from berth_descheduler.api.parameters import IdempotencyKey, refuse_unknown
from berth_descheduler.api.problems import FieldFault, ProblemError, ProblemKind, fault, invalid
from berth_descheduler.capabilities.drain.api.schemas import DrainRequest, RequestedDrain, describe_drain
from berth_descheduler.migration.plans.requests import request_drain
from berth_kube import MIGRATION_PLANS, NODES, Access, KubeClient


def add_paths(router: APIRouter, api: ApiContext) -> None:
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
        return answer_with(describe_drain(plan), HTTPStatus.ACCEPTED, headers)


def _require_nodes(client: KubeClient, names: list[str], *, cordoned: bool) -> None:
    """Raise `ProblemError` for nodes that do not exist or, where they have to be cordoned, are not."""
    faults: dict[str, FieldFault] = {}
    for index, name in enumerate(names):
        with naming(f"body.nodes[{index}]", name, "node"):
            node = client.get(NODES, name, type=Node)
        if cordoned and not node.spec.unschedulable:
            faults[name] = fault(f"body.nodes[{index}]", name, "a node that is cordoned")
    if faults:
        message = f"not cordoned: run kubectl cordon {' '.join(faults)}"
        raise ProblemError(ProblemKind.CONFLICT, message, faults=list(faults.values()))


PATHS: Final = CapabilityPaths(
    add_to=add_paths,
    rights={("POST", "/v1/drains"): ("create", MIGRATION_PLANS)},
    documents=(RequestedDrain,),
    examples={
        "ask_for_drain": {
            "request": "POST /v1/drains",
            "body": {"nodes": ["node-4"]},
            "answer": {
                "plan": "plan-20261121-142000-p9w4s",
                "nodes": ["node-4"],
                "mode": "Auto",
                "phase": "Requested",
                "requestedBy": "ada",
                "created": "2026-11-21T14:20:00Z",
            },
        }
    },
)
