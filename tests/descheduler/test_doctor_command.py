"""`berth doctor` says what is not as it must be, why that matters and what to do; it changes nothing."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth_core import Pod
from berth_core.labels import EVICTIONS_LABEL, HANDOVER_GATE, RESERVATION_LABEL
from berth_core.names import EVICTION_WEBHOOK_CONFIGURATION, OPERATOR_LEASE
from berth_core.reservations import (
    Capacity,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
)
from berth_core.snapshot import Snapshot
from berth_descheduler.cli import doctor
from berth_descheduler.cli.main import run
from berth_descheduler.doctor import ADVICE
from berth_descheduler.doctor.reservations import find_waits_in_vain
from berth_descheduler.doctor.unanswered_evictions import find_unanswered_evictions
from berth_kube.client import connect
from berth_sandbox.invariants import BOUND_SECONDS, ClusterState, Invariant, Violation
from builders import NOON_TEXT, FakeClock, meta, node, owner, pod, reservation
from descheduler.cluster_script import serve
from scripted_server import ScriptedServer, page, refusal

LEASES = "/apis/coordination.k8s.io/v1/namespaces/berth-system/leases"
PLANS = "/apis/berth.volcano.sh/v1alpha1/migrationplans"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
AT_WORK = {
    "metadata": msgspec.to_builtins(meta(OPERATOR_LEASE)),
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 3600, "renewTime": NOON_TEXT},
}
GATED = pod("web-0", labels={RESERVATION_LABEL: "gone"}, gates=[HANDOVER_GATE])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr(doctor, "SystemClock", lambda: made)
    return made


def examine(folder: Path, *options: str, lease: Mapping[str, Any] = AT_WORK, pods: tuple[Any, ...] = ()) -> int:
    """The exit code for a cluster of one node and some pods; nothing but lists is answered."""
    with ScriptedServer() as server:
        serve(server, Snapshot(nodes=(node("node-a"),), pods=pods), Reservation=page())
        server.on("GET", LEASES, page(lease)).on("GET", PLANS, page()).on("GET", WEBHOOKS, page())
        code = run(["doctor", "--kubeconfig", server.kubeconfig(folder), *options])
        assert {seen.method for seen in server.seen} == {"GET"}
    return code


def test_one_look_says_that_all_is_well(tmp_path: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    assert examine(tmp_path) == 0
    assert capsys.readouterr().out.startswith("All is well")
    assert clock.slept == []


def test_a_finding_is_explained_with_the_command_that_mends_it(
    tmp_path: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examine(tmp_path, pods=(GATED,)) == 1
    said = capsys.readouterr().out
    advice = ADVICE[Invariant.GATE_LEFT]
    for words in (advice.what, advice.why, advice.to_do, "pod default/web-0: Reservation gone is not live"):
        assert words in re.sub(r"\s+", " ", said)
    assert "kubectl -n default patch pod web-0 -p '{" in said
    assert sum(clock.slept) == BOUND_SECONDS[Invariant.GATE_LEFT]


def test_findings_can_be_read_by_a_machine(
    tmp_path: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examine(tmp_path, "--output", "json", pods=(GATED,)) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["healthy"] is False
    assert said["seconds"] == sum(clock.slept)
    (finding,) = said["findings"]
    assert [finding[key] for key in ("invariant", "kind", "namespace", "name", "detail")] == [
        "GateLeft",
        "pod",
        "default",
        "web-0",
        "Reservation gone is not live",
    ]


def test_an_operator_that_is_not_at_work_is_told_with_berths_own_namespace(
    tmp_path: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examine(tmp_path, lease={**AT_WORK, "spec": {}}) == 1
    said = capsys.readouterr().out
    assert "lease berth-system/berth-operator: the Lease has no holder" in said
    assert "kubectl -n berth-system describe deployment -l app.kubernetes.io/component=operator" in said
    assert sum(clock.slept) == BOUND_SECONDS[Invariant.OPERATOR_ABSENT]


def test_a_cluster_without_berth_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        assert run(["doctor", "--kubeconfig", serve(server, Snapshot()).kubeconfig(tmp_path)]) == 2
    assert "expected one with Berth's CRDs installed" in capsys.readouterr().err


def test_a_cluster_that_refuses_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        refused = refusal(403, "Forbidden", "pods is forbidden")
        serve(server, Snapshot(), Reservation=page(), Pod=refused)
        assert run(["doctor", "--kubeconfig", server.kubeconfig(tmp_path)]) == 2
    assert "pods is forbidden" in capsys.readouterr().err


# --- reservations ----------------------------------------------------------------------------------------------------


def waits_in_vain(reservation: Reservation) -> list[tuple[Invariant, str, str]]:
    violations = find_waits_in_vain(ClusterState(reservations=(reservation,)))
    return [(violation.invariant, violation.target, violation.detail) for violation in violations]


@pytest.mark.parametrize(
    ("reason", "phase", "is_controlled", "want"),
    [
        (ReservationReason.FENCE_LIMIT, ReservationPhase.PENDING, False, Invariant.ROOM_UNFENCED),
        (ReservationReason.UNSCHEDULABLE_YET, ReservationPhase.PENDING, False, Invariant.WAITS_IN_VAIN),
        (ReservationReason.UNSCHEDULABLE_YET, ReservationPhase.PENDING, True, None),
        (ReservationReason.AWAITING_CAPACITY, ReservationPhase.WAITING, False, None),
        (ReservationReason.SLOTS_HELD, ReservationPhase.AVAILABLE, False, None),
    ],
)
def test_a_reservation_that_waits_in_vain_is_told_unless_its_window_or_queue_says_so(
    reason: ReservationReason,
    phase: ReservationPhase,
    is_controlled: bool,  # noqa: FBT001 - of a table
    want: Invariant | None,
) -> None:
    status = ReservationStatus(state=ReservationState(phase=phase, reason=reason.value, message="as it says"))
    of = owner("ReservationWindow", "nightly") if is_controlled else None
    one = reservation("night", status=status, capacity=Capacity.WHEN_FREE)
    owners = (of,) if of is not None else ()
    one = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, owner_references=owners))
    violations = waits_in_vain(one)
    assert violations == ([(want, "reservation default/night", "as it says")] if want else [])
    takes_what_is_free = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, capacity=Capacity.FREE))
    assert not waits_in_vain(takes_what_is_free)


@pytest.mark.parametrize("invariant", Invariant)
def test_every_invariant_is_explained_with_a_command_for_what_was_found(invariant: Invariant) -> None:
    advice = ADVICE[invariant]
    command = advice.command_for(Violation(invariant, "pod team/web-0", ""), "berth-system")
    assert all((advice.what, advice.why, advice.to_do))
    assert command.startswith("kubectl ")
    assert not re.search(r"\{(own|namespace|name)\}", command)
    assert "{" not in command or "'{" in command
    assert "web-0" in command or "berth-system" in command or "-n team" in command


def test_a_pod_that_was_let_go_is_mended_with_the_value_that_its_label_had() -> None:
    detail = "no plan that runs moves it; its label pod-template-hash was 5d4f8c7b9"
    command = ADVICE[Invariant.RELEASED_LEFT].command_for(
        Violation(Invariant.RELEASED_LEFT, "pod shop/web-1", detail), "berth-system"
    )
    assert command == "kubectl -n shop label pod web-1 --overwrite pod-template-hash=5d4f8c7b9"


# --- evictions by others

NAMESPACES_PATH: Final = "/api/v1/namespaces"
EVICTIONS_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SERVICE: Final = {"clientConfig": {"service": {"namespace": "berth-system", "name": "berth-webhook"}}}
OTHER_CONFIGURATION: Final[dict[str, Any]] = {"metadata": {"name": "another"}}
ASKING_POD: Final = pod("web-0", labels={EVICTIONS_LABEL: "Surge"}, ready=True)


def operator_pod(*, ready: bool) -> Pod:
    return pod("op", namespace="berth-system", labels={"app.kubernetes.io/component": "operator"}, ready=ready)


def configuration(*webhooks: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": EVICTION_WEBHOOK_CONFIGURATION}, "webhooks": list(webhooks)}


UNANSWERED: Final[dict[str, tuple[list[Any], dict[str, Any], str]]] = {
    "where evictions are switched off": ([], OTHER_CONFIGURATION, "it is switched off"),
    "where no operator has started": ([], configuration(), "no operator has registered its webhooks"),
    "where no operator is Ready": ([operator_pod(ready=False)], configuration(SERVICE), "no operator is Ready"),
    "where one answers": ([operator_pod(ready=True)], configuration(SERVICE), ""),
    "where one answers at an address": ([], configuration({"clientConfig": {"url": "https://op:9443/x"}}), ""),
}


@pytest.mark.parametrize(("pods", "registered", "want"), UNANSWERED.values(), ids=UNANSWERED)
def test_who_asks_for_replacements_in_vain_is_told(
    tmp_path: Path, pods: list[Any], registered: Mapping[str, Any], want: str
) -> None:
    state = ClusterState(pods=(*pods, ASKING_POD))
    with ScriptedServer() as server:
        server.on("GET", NAMESPACES_PATH, page({"metadata": {"name": "shop"}}))
        server.on("GET", EVICTIONS_PATH, page(registered))
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            found = {one.name: one.detail for one in find_unanswered_evictions(client, state)}
    assert set(found) == ({"shop", "default"} if want else set())
    assert all(want in detail for detail in found.values())
    if want:
        assert found["default"].startswith("1 pod with the label berth.volcano.sh/evictions=Surge: ")


def test_where_nobody_asks_for_replacements_nothing_needs_to_answer(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.on("GET", NAMESPACES_PATH, page())
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            assert not tuple(find_unanswered_evictions(client, ClusterState(pods=(pod("web-0"),))))
        assert [seen.path.partition("?")[0] for seen in server.seen] == [NAMESPACES_PATH]
