"""`berth doctor` reports what keeps windows from holding what they should."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from berth_descheduler.capabilities.windows.findings import find_window_troubles
from berth_kube.client import connect
from berth_sandbox.invariants import Invariant
from builders import NOON_TEXT
from scripted_server import ScriptedServer, page

WINDOWS: Final = {
    "one that waits for its time": (
        {"Scheduled": ("True", "OnSchedule"), "Sufficient": ("Unknown", "NotReserving")},
        None,
    ),
    "one that is switched off": ({"Scheduled": ("False", "Suspended")}, None),
    "one without a status yet": ({}, None),
    "an invalid one": ({"Scheduled": ("False", "Invalid")}, Invariant.WINDOW_INVALID),
    "one that is open too often": ({"Scheduled": ("False", "Overlapping")}, Invariant.WINDOW_OVERLAPS),
    "one for which no pods are moved": ({"Sufficient": ("False", "NoMoves")}, Invariant.WINDOW_WITHOUT_MOVES),
    "one for which a plan waits": ({"Sufficient": ("False", "PlansAwaitApproval")}, Invariant.WINDOW_WITHOUT_MOVES),
    "one whose pods end too late": ({"Sufficient": ("False", "Late")}, Invariant.WINDOW_SHORT),
    "one that passes a limit": ({"Sufficient": ("False", "Forbidden")}, Invariant.WINDOW_SHORT),
}


@pytest.mark.parametrize(("conditions", "want"), WINDOWS.values(), ids=WINDOWS)
def test_a_window_that_will_not_have_its_capacity_is_told(
    tmp_path: Path, conditions: Mapping[str, tuple[str, str]], want: Invariant | None
) -> None:
    written = [{"type": type_, "status": status, "reason": why} for type_, (status, why) in conditions.items()]
    written = [{**condition, "message": "as it says", "lastTransitionTime": NOON_TEXT} for condition in written]
    metadata = {"name": "nightly", "namespace": "batch", "uid": "u"}
    body = {"metadata": metadata, "spec": {"podNumToReserve": 1}, "status": {"conditions": written}}
    with ScriptedServer() as server:
        server.on("GET", "/apis/berth.volcano.sh/v1alpha1/reservationwindows", page(body))
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            violations = tuple(find_window_troubles(client))
    assert [(violation.invariant, violation.target) for violation in violations] == (
        [(want, "reservationwindow batch/nightly")] if want else []
    )


def test_a_cluster_without_windows_has_no_trouble_with_them(tmp_path: Path) -> None:
    with ScriptedServer() as server, connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
        assert not tuple(find_window_troubles(client))
