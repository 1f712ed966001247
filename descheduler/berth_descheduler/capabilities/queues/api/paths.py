"""The path by which guarantees of queues are read."""

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request, Response

from berth_core import SnapshotKind, format_timestamp
from berth_descheduler.api.capability_paths import CapabilityPaths
from berth_descheduler.api.context import ApiContext, answer_with
from berth_descheduler.api.openapi import answers
from berth_descheduler.api.parameters import refuse_unknown
from berth_descheduler.api.problems import ProblemError, ProblemKind
from berth_descheduler.capabilities.queues.documents import MeasuredQueues, QueueList
from berth_kube import NODES, PODS, QUEUES, VOLCANO_QUEUES, Access, Resource

_KINDS: Final[Mapping[SnapshotKind, Resource]] = {
    SnapshotKind.VOLCANO_QUEUES: VOLCANO_QUEUES,
    SnapshotKind.QUEUES: QUEUES,
}


def add_paths(router: APIRouter, api: ApiContext) -> None:
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
        hidden_kinds = await _hidden_kinds(api, request)
        queues, measured_at = await api.capacity.derive(
            ("queues",), lambda measurement: (MeasuredQueues.of(measurement.snapshot), measurement.at)
        )
        shown = queues.without(hidden_kinds)
        document = QueueList(
            measured_at=format_timestamp(measured_at), items=shown.describe(), unread=tuple(sorted(shown.unread))
        )
        return answer_with(document)


async def _hidden_kinds(api: ApiContext, request: Request) -> frozenset[SnapshotKind]:
    """Return the kinds of queues that the caller may not list; raises `ProblemError` if it may list none."""
    problems_by_kind: dict[SnapshotKind, ProblemError] = {}
    for kind, resource in _KINDS.items():
        try:
            await api.admit(request, Access("list", resource))
        except ProblemError as error:
            if error.kind is not ProblemKind.FORBIDDEN:
                raise
            problems_by_kind[kind] = error
    if len(problems_by_kind) == len(_KINDS):
        raise problems_by_kind[SnapshotKind.VOLCANO_QUEUES]
    return frozenset(problems_by_kind)


PATHS: Final = CapabilityPaths(
    add_to=add_paths,
    rights={("GET", "/v1/queues"): ("list", NODES)},
    documents=(QueueList,),
    examples={
        "list_queues": {
            "request": "GET /v1/queues",
            "answer": {
                "measuredAt": "2026-11-21T14:15:00Z",
                "items": [
                    {
                        "name": "research",
                        "source": "Berth",
                        "state": "",
                        "unreadable": "",
                        "refused": "",
                        "resources": [
                            {
                                "resource": "cpu",
                                "guaranteed": "32",
                                "allocated": "20",
                                "held": "4",
                                "left": "8",
                                "usable": "8",
                                "placeable": "4",
                                "placeableRatio": 0.5,
                            }
                        ],
                        "shapes": [
                            {
                                "shape": "cpu=4,memory=16Gi",
                                "askedBy": "ml/train-0",
                                "wanted": 2,
                                "placeable": 1,
                                "nodesWithRoom": 1,
                            }
                        ],
                    }
                ],
                "unread": [],
            },
        }
    },
)
