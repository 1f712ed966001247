"""What cannot be read is named by the commands that plan and by `berth doctor`, also where nothing depends on it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from berth_core import RestrictionReason
from berth_core.object_lists import decode_list, describe_unreadable, encode_items
from berth_descheduler.cli import doctor
from berth_descheduler.cli.main import run
from berth_descheduler.doctor import ADVICE
from berth_sandbox.invariants import Invariant
from builders import NOON_TEXT, FakeClock
from descheduler.cluster_script import serve_items
from scripted_server import ScriptedServer, page, refusal
from unreadable_scenes import EVERYTHING, HARMLESS, OURS, UNREADABLE, Raw, broken, spoiled

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/berth-system/leases"
PLANS: Final = "/apis/berth.volcano.sh/v1alpha1/migrationplans"
POLICIES: Final = "/apis/berth.volcano.sh/v1alpha1/deschedulerpolicies"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
OPERATOR: Final = {
    "metadata": {"name": "berth-operator", "namespace": "berth-system"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 3600, "renewTime": NOON_TEXT},
}
SCENES: Final = {
    **{kind: spoiled([*EVERYTHING, *items], which) for kind, (items, which, _) in UNREADABLE.items()},
    **{kind: [*EVERYTHING, *OURS, broken(one)] for kind, one in HARMLESS.items()},
}
ONLY_FOR_SURGES: Final = frozenset({"DaemonSet", "Deployment"})
"""Kinds that a live cluster is asked for only about pods that might surge."""

ONLY_BY_NAME: Final = frozenset({"ControllerRevision"})
"""Kinds of which a live cluster is asked only for the objects that StatefulSets name."""

ONLY_WITH_QUEUES: Final = frozenset({"LocalQueue"})
"""Kinds that a live cluster is asked for only where it has a queue of Berth's."""

NEEDLESS: Final = SCENES["a budget of an empty namespace"]
CONSOLIDATE: Final = ("--strategy", "consolidate")

PlanOf: TypeAlias = Callable[..., int]
"""Plans on some objects and returns the exit code."""


def sentence(items: list[Raw]) -> str:
    """What is said of the one object that cannot be read."""
    (text,) = [describe_unreadable(one) for one in decode_list(encode_items(items)).objects if one.metadata.unreadable]
    return text


def plan_live(folder: Path, items: list[Raw], *options: str) -> int:
    with ScriptedServer() as server:
        serve_items(server, items)
        return run(["plan", "--kubeconfig", server.kubeconfig(folder), *CONSOLIDATE, *options])


def plan_file(folder: Path, items: list[Raw], *options: str) -> int:
    path = folder / "cluster.json"
    path.write_bytes(encode_items(items))
    return run(["plan", "--snapshot", str(path), "--snapshot-kinds", "all", *CONSOLIDATE, *options])


def restrictions(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = json.loads(captured.readouterr().out)["predicted"]["restrictions"]
    return [one for one in said if one["reason"] == RestrictionReason.UNREADABLE_OBJECT]


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        *((plan_file, kind) for kind in SCENES),
        *((plan_live, kind) for kind in SCENES if kind not in ONLY_FOR_SURGES | ONLY_BY_NAME | ONLY_WITH_QUEUES),
    ],
)
def test_a_plan_names_it_and_moves_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: PlanOf, kind: str
) -> None:
    items = SCENES[kind]
    assert plan(tmp_path, items, "--output", "json") == 0
    captured = json.loads(capsys.readouterr().out)
    (restriction,) = [one for one in captured["predicted"]["restrictions"] if one["reason"] == "UnreadableObject"]
    assert restriction["message"] == f"{sentence(items)}. What depends on it stays."
    assert restriction["message"] in captured["summary"]
    assert "ledger" in {move["pod"] for move in captured["moves"]}


def test_people_see_it_in_the_first_lines_and_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page_file = tmp_path / "plan.html"
    assert plan_live(tmp_path, NEEDLESS, "--report", str(page_file)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    want = (
        "PodDisruptionBudget empty/none cannot be read: Expected `object`, got `int` - at `$.spec`. What depends on it"
    )
    assert want in shown
    assert "PodDisruptionBudget empty/none cannot be read" in page_file.read_text(encoding="utf-8")


def test_of_many_the_first_are_named_and_the_others_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = HARMLESS["a budget of an empty namespace"]
    many = [{**budget, "metadata": {**budget["metadata"], "name": f"b{index}"}, "spec": 7} for index in range(9)]
    assert plan_live(tmp_path, [*EVERYTHING, *OURS, *many], "--output", "json") == 0
    (restriction,) = restrictions(capsys)
    assert restriction["message"].count("PodDisruptionBudget empty/b") == 5
    assert restriction["message"].endswith("; 4 more objects cannot be read. What depends on one stays.")


def test_a_plan_of_readable_objects_says_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_live(tmp_path, [*EVERYTHING, *OURS], "--output", "json") == 0
    assert restrictions(capsys) == []


# --- one of each kind at once, and programs of their own --------------------------------------------------------------


def of_each_kind() -> list[Raw]:
    """A healthy cluster of one tenant, and of the other one object of each kind that cannot be read."""
    odd = {}
    for items, which, _ in UNREADABLE.values():
        (one,) = [one for one in spoiled(items, which) if one not in items]
        odd[which] = one
    return [*EVERYTHING, *odd.values(), *map(broken, HARMLESS.values())]


@pytest.mark.parametrize(
    "command", [["plan", "--strategy=consolidate"], ["run", "--dry-run", "--strategy=consolidate"]]
)
def test_a_program_moves_the_rest_where_one_object_of_each_kind_cannot_be_read(
    tmp_path: Path, command: list[str]
) -> None:
    with ScriptedServer() as server:
        serve_items(server, of_each_kind()).on("GET", PLANS, page())
        options = ["--kubeconfig", server.kubeconfig(tmp_path), "--output", "json"]
        program = [sys.executable, "-m", "berth_descheduler.cli", *command, *CONSOLIDATE, *options]
        ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=180)
        assert {seen.method for seen in server.seen} == {"GET"}
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    found = json.loads(ended.stdout)
    assert found["predicted"]["moves"] == 1
    (unreadable,) = [one for one in found["predicted"]["restrictions"] if one["reason"] == "UnreadableObject"]
    assert unreadable["message"].count(" cannot be read: ") == 5
    assert unreadable["message"].endswith(" more objects cannot be read. What depends on one stays.")


# --- doctor -----------------------------------------------------------------------------------------------------------


def examine(folder: Path, monkeypatch: pytest.MonkeyPatch, items: list[Raw], **instead: Any) -> int:  # noqa: ANN401
    clock = FakeClock()
    monkeypatch.setattr(doctor, "SystemClock", lambda: clock)
    with ScriptedServer() as server:
        serve_items(server, items, **{"Reservation": page(), **instead})
        server.on("GET", LEASES, page(OPERATOR)).on("GET", WEBHOOKS, page()).on("GET", PLANS, page())
        server.on("GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", page())
        return run(["doctor", "--kubeconfig", server.kubeconfig(folder), "--output", "json"])


@pytest.mark.parametrize("kind", sorted(SCENES.keys() - ONLY_FOR_SURGES - ONLY_BY_NAME))
def test_the_doctor_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    items = SCENES[kind]
    instead = {"Reservation": page({**HARMLESS["Reservation"], "spec": 7})} if kind == "Reservation" else {}
    assert examine(tmp_path, monkeypatch, items, **instead) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = [one for one in findings if one["invariant"] == Invariant.OBJECT_UNREADABLE]
    (unreadable,) = [one for one in decode_list(encode_items(items)).objects if one.metadata.unreadable]
    meta = unreadable.metadata
    assert (finding["namespace"], finding["name"]) == (meta.namespace, meta.name)
    assert finding["detail"] == meta.unreadable
    assert finding["command"].startswith("kubectl get ")
    assert finding["what"] == ADVICE[Invariant.OBJECT_UNREADABLE].what


def test_the_doctor_finds_nothing_where_all_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine(tmp_path, monkeypatch, [*EVERYTHING, *OURS]) == 0, capsys.readouterr().out


def test_the_doctor_says_nothing_of_kinds_that_it_may_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refusal(403, "Forbidden", "persistentvolumes is forbidden")
    assert examine(tmp_path, monkeypatch, NEEDLESS, PersistentVolume=refused) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["invariant"], finding["name"]) == ("ObjectUnreadable", "none")
