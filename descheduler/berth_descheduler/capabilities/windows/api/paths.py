"""The path by which the calendar of windows is read."""

from datetime import datetime
from typing import Final

from fastapi import APIRouter, Request, Response

from berth_core import ReservationWindow
from berth_descheduler.api.capability_paths import CapabilityPaths
from berth_descheduler.api.context import ApiContext, answer_with
from berth_descheduler.api.openapi import answers
from berth_descheduler.api.parameters import refuse_unknown
from berth_descheduler.capabilities.windows.calendar import Calendar, describe_calendar
from berth_kube import RESERVATION_WINDOWS, Access, KubeClient, NotFoundError


def add_paths(router: APIRouter, api: ApiContext) -> None:
    @router.get(
        "/calendar",
        summary="List what ReservationWindows reserve, open and close",
        description="Needs the right to list reservationwindows. The next 24 hours, the first change first; windows "
        "that never open are named with what is wrong with them. An answer may be a few seconds old.",
        tags=["cluster"],
        **answers(Calendar, "The calendar.", missing=False),
    )
    async def show_calendar(request: Request) -> Response:
        refuse_unknown(dict(request.query_params), set())
        await api.admit(request, Access("list", RESERVATION_WINDOWS))
        # Some windows come every minute, so it is not worked out for each reader.
        return answer_with(await api.capacity.read(("calendar",), lambda: _read_calendar(api.client, api.clock.now())))


def _read_calendar(client: KubeClient, now: datetime) -> Calendar:
    try:
        raw_windows = client.list(RESERVATION_WINDOWS).items
    except NotFoundError:  # a cluster without the kind
        raw_windows = ()
    return describe_calendar(map(ReservationWindow.read, raw_windows), now)


PATHS: Final = CapabilityPaths(
    add_to=add_paths,
    rights={("GET", "/v1/calendar"): ("list", RESERVATION_WINDOWS)},
    documents=(Calendar,),
    examples={
        "show_calendar": {
            "request": "GET /v1/calendar",
            "answer": {
                "from": "2026-11-21T14:15:00Z",
                "until": "2026-11-22T14:15:00Z",
                "items": [
                    {
                        "time": "2026-11-22T03:00:00Z",
                        "what": "opens",
                        "window": "ml/nightly",
                        "start": "2026-11-22T03:00:00Z",
                        "end": "2026-11-22T04:00:00Z",
                        "pods": 2,
                        "resources": {"cpu": "8", "memory": "32Gi"},
                        "nodeSelector": {},
                        "reservation": "nightly-20261122-0300",
                        "nodes": ["node-1", "node-2"],
                        "held": 2,
                        "taken": 0,
                        "expectedAt": None,
                    }
                ],
                "problems": [],
            },
        }
    },
)
