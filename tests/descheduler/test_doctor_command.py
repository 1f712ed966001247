"""`berth doctor` says what is not as it must be, why that matters and what to do; it changes nothing."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth_core.labels import HANDOVER_GATE, RESERVATION_LABEL
from berth_core.names import OPERATOR_LEASE
from berth_core.snapshot import Snapshot
from berth_descheduler.cli import doctor
from berth_descheduler.cli.doctor import ADVICE
from berth_descheduler.cli.main import run
from berth_sandbox.invariants import BOUND_SECONDS, Invariant, Violation
from builders import NOON_TEXT, FakeClock, meta, node, pod
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
    assert "kubectl -n berth-system describe deployment berth-operator" in said
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


@pytest.mark.parametrize("invariant", Invariant)
def test_every_invariant_is_explained_with_a_command_for_what_was_found(invariant: Invariant) -> None:
    advice = ADVICE[invariant]
    command = advice.command_for(Violation(invariant, "pod team/web-0", ""), "berth-system")
    assert all((advice.what, advice.why, advice.to_do))
    assert command.startswith("kubectl ")
    assert not re.search(r"\{(own|namespace|name)\}", command)
    assert "web-0" in command or "berth-system" in command or "-n team" in command
