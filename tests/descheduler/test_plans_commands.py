"""`berth plans`, `show`, `approve` and `abort` as people and machines call them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import html5lib
import pytest
import yaml
from msgspec.structs import replace

from berth_core import OwnerReference
from berth_core.labels import STARVING_JOB_LABEL
from berth_core.names import LEADER_LEASE
from berth_core.reservations import ReservationPhase, ReservationState, ReservationStatus, Slot, SlotState
from berth_descheduler.cli import plans as plan_commands
from berth_descheduler.cli.main import run
from berth_kube.errors import ForbiddenError, NotFoundError
from berth_kube.resources import LEASES, MIGRATION_PLANS, RESERVATIONS
from builders import FakeClock, as_api, reservation, task
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from descheduler.stored_bodies import how, move, plan

Captured = pytest.CaptureFixture[str]
ACHIEVED = {"moves": 2, "landedOnTarget": 1, "failed": 1, "freedNodes": [], "pendingPods": 0, "seconds": 12.5}
PARTIAL = plan(
    "plan-2",
    "Partial",
    moves=(move("web-1"), move("api-1", target="high-2", wave=2)),
    statuses=(
        how("web-1", node="high-1", replacement="web-1~1"),
        how("api-1", "Failed", reason="ReservationTimeout", message="the place was not held in 60 s"),
    ),
    achieved=ACHIEVED,
    message="1 of 2 pods landed on their targets, 1 failed",
    created="2026-11-21T12:00:01Z",
    requestedBy="ann",
    approved=True,
    approvedBy="bea",
)
PROPOSED = plan("plan-1", "Proposed", approveBefore="2026-11-21T13:00:00Z")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCluster:
    """A small cluster in memory in place of the API server; waiting takes no time, and nothing was shown before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = fragmented_cluster()
    made.start_service()
    monkeypatch.setattr(plan_commands, "connect", lambda **_: made)
    monkeypatch.setattr(plan_commands, "SystemClock", FakeClock)
    return made


def add(cluster: FakeCluster, *plans: dict[str, Any]) -> FakeCluster:
    for one in plans:
        cluster.add(MIGRATION_PLANS, one)
    return cluster


def spec_of(cluster: FakeCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.objects[MIGRATION_PLANS.plural]["", name]["spec"]
    return found


def shown(capsys: Captured, *arguments: str, want_code: int = 0) -> str:
    assert run(list(arguments)) == want_code
    return capsys.readouterr().out


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- plans ------------------------------------------------------------------------------------------------------------


def test_plans_are_listed_with_the_newest_first(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED, PARTIAL, plan("plan-3", None, freed=None, created="2026-11-21T11:00:00Z"))

    found = rows(shown(capsys, "plans"))

    assert found[1][:7] == ["plan-2", "nightly", "Approve", "Partial", "2", "1", "0s"]
    assert found[2][:7] == ["plan-1", "nightly", "Approve", "Proposed", "1", "0", "0s"]
    assert found[3][:6] == ["plan-3", "nightly", "Approve", "Requested", "0", "1h"]


def test_without_plans_it_is_said_who_makes_them(cluster: FakeCluster, capsys: Captured) -> None:
    assert "There are no plans" in shown(capsys, "plans")
    assert run(["plans", "--output", "json"]) == 0
    written = capsys.readouterr()
    assert json.loads(written.out) == {"items": [], "remaining": 0, "continue": ""}
    assert "There are no plans" in written.err
    asked = [("list", kind) for kind in ("migrationplans", "reservations", "migrationplans")]
    assert [(call.verb, call.plural) for call in cluster.calls] == asked


def test_plans_are_chosen_by_labels_and_all_namespaces_mean_nothing(cluster: FakeCluster, capsys: Captured) -> None:
    labelled = plan("plan-3")
    labelled["metadata"]["labels"] = {"team": "ml"}
    add(cluster, PARTIAL, labelled)

    assert shown(capsys, "plans", "-A", "-l", "team=ml", "-o", "name").split() == [
        "migrationplan.berth.volcano.sh/plan-3"
    ]
    assert run(["plans", "-l", "a in b"]) == 2
    assert "--selector is 'a in b'" in capsys.readouterr().err


def test_jobs_that_nodes_are_kept_for_are_listed_with_when_they_may_run(cluster: FakeCluster, capsys: Captured) -> None:
    slots = (
        Slot(task="room-0", index=0, state=SlotState.HELD, node="n1"),
        Slot(task="room-1", index=0, state=SlotState.PENDING, node="n2", expected_at="2026-11-21T12:20:00Z"),
    )
    state = ReservationState(phase=ReservationPhase.WAITING, reason="AwaitingCapacity")
    train = reservation(
        "starving-train",
        labels={STARVING_JOB_LABEL: "uid-train"},
        tasks=[task("room-0"), task("room-1")],
        status=ReservationStatus(state=state, slots=slots, expires_at="2026-11-21T15:00:00Z"),
    )
    job = OwnerReference(api_version="v1", kind="PodGroup", name="train", uid="uid-train")
    train = replace(train, metadata=replace(train.metadata, owner_references=(job,)))
    cluster.add(RESERVATIONS, as_api(train))
    cluster.add(RESERVATIONS, as_api(reservation("of-nobody-starving")))

    said = shown(capsys, "plans")

    assert "Jobs that nodes are kept for" in said
    [row] = [line.split() for line in said.splitlines() if "train" in line]
    assert [word for word in row if word not in "│┃|"] == [
        *("PodGroup", "default/train", "n1,", "n2", "1", "of", "2", "20m", "3h", "Waiting,", "AwaitingCapacity")
    ]
    assert "of-nobody-starving" not in said
    add(cluster, PARTIAL)
    assert "Jobs that nodes are kept for" not in shown(capsys, "show", "plan-2")


def test_plans_are_chosen_by_policy_and_phase(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED, PARTIAL, plan("by-hand", policy="", mode=None))

    def names(*arguments: str) -> list[str]:
        return [one["name"] for one in json.loads(shown(capsys, "plans", "--output", "json", *arguments))["items"]]

    assert names("--phase", "partial", "--phase", "Proposed") == ["plan-2", "plan-1"]
    assert names("--policy", "nightly") == ["plan-2", "plan-1"]
    assert names("--policy", "weekly") == []


def test_a_plan_in_the_list_is_told_in_short(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PARTIAL)

    (found,) = yaml.safe_load(shown(capsys, "plans", "--output", "yaml"))["items"]

    assert found == {
        "name": "plan-2",
        "created": "2026-11-21T12:00:01Z",
        "policy": "nightly",
        "trigger": "Cron",
        "mode": "Approve",
        "requestedBy": "ann",
        "approved": True,
        "approvedBy": "bea",
        "approveBefore": None,
        "aborted": False,
        "abortedBy": "",
        "phase": "Partial",
        "message": "1 of 2 pods landed on their targets, 1 failed",
        "startTime": None,
        "completionTime": None,
        "plannedMoves": 2,
        "plannedEvictions": 0,
        "states": {"Landed": 1, "Failed": 1},
        "landedOnTarget": 1,
        "evictions": 0,
        "freedNodeCount": 0,
    }


# --- show -------------------------------------------------------------------------------------------------------------


def test_a_plan_is_shown_with_its_moves_and_what_was_achieved(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PARTIAL)

    text = shown(capsys, "show", "plan-2")

    assert "Cron run of policy nightly in the mode Approve, asked for by ann, approved by bea" in text
    assert ["pods", "landed", "on", "their", "target", "2", "1"] in rows(text)
    assert ["nodes", "freed", "1", "of", "4", "0"] in rows(text)
    assert ["failed", "0", "1"] in rows(text)
    (failed,) = [line for line in text.splitlines() if "api-1" in line]
    assert "ReservationTimeout" in failed
    assert "the place was not held in 60 s" in failed


def test_a_plan_that_waits_says_how_to_approve_it(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED)

    text = shown(capsys, "show", "plan-1")

    assert "It waits for approval (until 2026-11-21T13:00:00Z): berth approve plan-1" in text
    assert "Pending" in text


def test_without_a_name_the_newest_plan_is_shown(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED, PARTIAL)

    assert json.loads(shown(capsys, "show", "--output", "json"))["name"] == "plan-2"


def test_the_json_of_a_plan_has_each_move(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PARTIAL)

    found = json.loads(shown(capsys, "show", "plan-2", "--output", "json"))

    assert found["predicted"]["freedNodes"] == ["low-1"]
    assert found["achieved"]["seconds"] == 12.5
    assert found["moves"][1] == {
        "index": 1,
        "namespace": "shop",
        "pod": "api-1",
        "podUID": "uid-api-1",
        "owner": None,
        "source": "low-1",
        "target": "high-2",
        "wave": 2,
        "after": None,
        "requests": {"cpu": "1", "memory": "1Gi"},
        "why": "",
        "state": "Failed",
        "reason": "ReservationTimeout",
        "message": "the place was not held in 60 s",
        "method": "Evict",
        "methodReason": "",
        "node": "",
        "replacement": "",
        "reservation": "",
    }


def test_the_rooms_of_a_plan_are_shown_with_what_became_of_them(cluster: FakeCluster, capsys: Captured) -> None:
    room = {"name": "ml/trainer", "namespace": "ml", "slots": [{"node": "low-1"}, {"node": "low-2"}]}
    status = {"name": "ml/trainer", "state": "Failed", "reason": "NotTaken", "message": "nobody came in 60 s"}
    made = plan("plan-1", "Partial", rooms=[room, {**room, "name": "ml/other"}])
    made["status"]["rooms"] = [status]
    add(cluster, made)

    text = shown(capsys, "show", "plan-1")
    first, second = json.loads(shown(capsys, "show", "plan-1", "--output", "json"))["rooms"]

    assert "low-1, low-2" in text
    assert "nobody came in 60 s" in text
    assert first == {
        "name": "ml/trainer",
        "namespace": "ml",
        "gang": "",
        "requests": {},
        "selector": "",
        "capacity": "Free",
        "slots": [{"node": "low-1", "pod": "", "podUID": ""}, {"node": "low-2", "pod": "", "podUID": ""}],
        "state": "Failed",
        "reason": "NotTaken",
        "message": "nobody came in 60 s",
        "reservation": "",
        "taken": [],
    }
    assert (second["name"], second["state"]) == ("ml/other", "Pending")


def test_how_pods_are_moved_is_shown_where_the_plan_asks_for_surges(cluster: FakeCluster, capsys: Captured) -> None:
    why = "it belongs to a StatefulSet, not to a Deployment"
    statuses = (how("web-1", method="Surge"), how("db-0", "Pending", method="Evict", methodReason=why))
    add(cluster, plan("plan-1", "Running", moves=(move("web-1"), move("db-0")), statuses=statuses), PARTIAL)

    text = shown(capsys, "show", "plan-1")
    found = json.loads(shown(capsys, "show", "plan-1", "--output", "json"))["moves"]

    surging, evicted = (next(line for line in text.splitlines() if name in line) for name in ("web-1", "db-0"))
    assert "Surge" in surging
    assert "Evict" in evicted
    assert why in " ".join(text.split())
    assert [(one["method"], one["methodReason"]) for one in found] == [("Surge", ""), ("Evict", why)]
    assert "method" not in shown(capsys, "show", "plan-2")


def test_why_a_single_pod_is_moved_is_said_until_something_else_is(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, plan("plan-1", "Proposed", moves=[move(reason="it is older than a week")]))

    assert "it is older than a week" in shown(capsys, "show", "plan-1")


def test_a_wide_table_of_plans_also_says_what_they_free(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, {**PARTIAL, "spec": {**PARTIAL["spec"], "objective": {"strategy": "Consolidate"}}})

    narrow, wide = shown(capsys, "plans"), shown(capsys, "plans", "-o", "wide")

    assert "to free" not in narrow
    assert all(heading in wide.splitlines()[0] for heading in ("trigger", "strategy", "to free", "freed", "took"))
    assert wide.splitlines()[1].split()[6:11] == ["0s", "Cron", "Consolidate", "1", "0"]


@pytest.mark.parametrize("arguments", [("plans",), ("show", "plan-2"), ("abort", "plan-2")])
def test_plans_are_named_as_kubectl_takes_them(
    cluster: FakeCluster, capsys: Captured, arguments: tuple[str, ...]
) -> None:
    add(cluster, plan("plan-2", "Running"))

    assert shown(capsys, *arguments, "-o", "name") == f"migrationplan.{MIGRATION_PLANS.group}/plan-2\n"


def test_a_plan_in_every_phase_can_be_shown(cluster: FakeCluster, capsys: Captured) -> None:
    for phase in ("Requested", "Proposed", "Approved", "Running", "Succeeded", "Partial", "Failed", "Aborted"):
        freed = None if phase == "Requested" else ("low-1",)
        add(cluster, plan(phase.lower(), phase, freed=freed))
        assert phase in shown(capsys, "show", phase.lower())


def test_the_page_of_a_stored_plan_says_what_came_of_it(cluster: FakeCluster, capsys: Captured, tmp_path: Path) -> None:
    add(cluster, PARTIAL)
    target = tmp_path / "plan.html"

    shown(capsys, "show", "plan-2", "--report", str(target))

    page = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(target.read_text(encoding="utf-8"))
    text = " ".join(page.itertext())
    assert "Plan plan-2, Partial" in text
    assert "1 of 2 pods landed on their targets, 1 failed" in text
    assert "ReservationTimeout" in text.replace(" ", "")
    assert "shop/api-1" in text


# --- approve and abort ------------------------------------------------------------------------------------------------


def test_a_plan_is_approved(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED)

    assert run(["approve", "plan-1", "--uid=uid-plan-1"]) == 0

    assert capsys.readouterr().err == "plan plan-1 is approved\n"
    assert spec_of(cluster, "plan-1")["approved"] is True


def make_anew(cluster: FakeCluster) -> None:
    """Have another plan under the name of one that was looked at."""
    cluster.delete(MIGRATION_PLANS, "plan-1")
    anew = plan("plan-1", "Proposed", moves=(move("db-1", target="high-2"),), created="2026-11-21T11:59:00Z")
    anew["metadata"]["uid"] = "another"
    add(cluster, anew)


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_a_plan_is_approved_as_it_was_shown_last(cluster: FakeCluster, capsys: Captured, output: str) -> None:
    add(cluster, PROPOSED)
    shown(capsys, "show", "plan-1", "--output", output)
    assert run(["approve", "plan-1"]) == 0
    assert spec_of(cluster, "plan-1")["approved"] is True


def test_a_plan_that_was_made_anew_after_it_was_shown_is_not_approved(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED)
    shown(capsys, "show", "plan-1")
    make_anew(cluster)

    assert run(["approve", "plan-1"]) == 1

    errors = capsys.readouterr().err
    assert "plan plan-1 is not the one that was looked at: it was made anew under the same name" in errors
    assert "moves that are gone: shop/web-1 from low-1 to high-1; new moves: shop/db-1 from low-1 to high-2" in errors
    assert "approved" not in spec_of(cluster, "plan-1")
    assert run(["approve", "plan-1", "--uid=uid-plan-1"]) == 1
    shown(capsys, "show", "plan-1")
    assert run(["approve", "plan-1"]) == 0


@pytest.mark.parametrize("looks", [[], ["show", "plan-1", "--output", "name"], ["show", "plan-2"], ["plans"]])
def test_a_plan_that_was_not_shown_is_not_approved_by_its_name_alone(
    cluster: FakeCluster, capsys: Captured, looks: list[str]
) -> None:
    add(cluster, PROPOSED, PARTIAL)
    if looks:
        shown(capsys, *looks)
    assert run(["approve", "plan-1"]) == 2
    wanted = "`berth show` has not printed plan plan-1 here; expected `berth show plan-1` before, or the uid"
    assert wanted in capsys.readouterr().err
    assert "approved" not in spec_of(cluster, "plan-1")


@pytest.mark.parametrize("content", ["", "[", '[{"server": 1}]', "[" * 5000, "\udcff"])
def test_a_file_of_shown_plans_that_cannot_be_read_is_as_none(
    cluster: FakeCluster, capsys: Captured, tmp_path: Path, content: str
) -> None:
    add(cluster, PROPOSED)
    file = tmp_path / "berth" / "shown-plans.json"
    file.parent.mkdir()
    file.write_text(content, encoding="utf-8", errors="surrogateescape")
    assert run(["approve", "plan-1"]) == 2
    shown(capsys, "show", "plan-1")
    assert run(["approve", "plan-1"]) == 0
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_home_that_cannot_be_written_hinders_nothing_but_an_approval_without_uid(
    cluster: FakeCluster, capsys: Captured, tmp_path: Path
) -> None:
    add(cluster, PROPOSED)
    (tmp_path / "berth").write_text("a file where the folder would be")
    assert "plan-1" in shown(capsys, "show", "plan-1")
    assert run(["approve", "plan-1"]) == 2
    assert run(["approve", "plan-1", "--uid=uid-plan-1"]) == 0


def test_a_plan_is_aborted(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, plan("plan-1", "Running"))

    assert run(["abort", "plan-1"]) == 0

    assert capsys.readouterr().err == "plan plan-1 is being aborted\n"
    assert spec_of(cluster, "plan-1")["aborted"] is True
    assert "Running, aborting" in shown(capsys, "show", "plan-1")


def test_a_plan_whose_deletion_waits_for_a_finalizer_is_shown_as_one_that_is_aborted(
    cluster: FakeCluster, capsys: Captured
) -> None:
    being_deleted = {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": ["foregroundDeletion"]}
    add(cluster, PROPOSED | {"metadata": PROPOSED["metadata"] | being_deleted})

    text = shown(capsys, "show", "plan-1")

    assert "Proposed, aborting" in text
    assert "It waits for approval" not in text
    (document,) = json.loads(shown(capsys, "plans", "--output=json"))["items"]
    assert document["aborted"] is True


def ends_after(cluster: FakeCluster, looks: int, status: dict[str, Any]) -> Callable[[str, str, str], None]:
    """Have a plan end by itself after it was looked at so often."""
    seen: list[str] = []

    def look(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("get", "migrationplans"):
            seen.append(name)
            if len(seen) == looks:
                cluster.objects[plural]["", name]["status"] = status

    return look


BY_UID: dict[str, list[str]] = {"approve": ["--uid=uid-plan-1"], "abort": []}

WAITED = {
    "a plan that is approved and goes well": ("approve", PROPOSED, "Succeeded", 0),
    "a plan that is approved and goes badly": ("approve", PROPOSED, "Partial", 1),
    "a plan that is aborted is as it was wanted": ("abort", plan("plan-1", "Running"), "Aborted", 0),
}


@pytest.mark.parametrize(("command", "before", "phase", "want_code"), WAITED.values(), ids=WAITED.keys())
def test_waiting_ends_with_the_plan_and_its_exit_code(
    cluster: FakeCluster, capsys: Captured, command: str, before: dict[str, Any], phase: str, want_code: int
) -> None:
    add(cluster, before)
    cluster.before = ends_after(cluster, 4, {"phase": phase, "message": "so it went", "moves": [how()]})

    assert run([command, "plan-1", *BY_UID[command], "--wait"]) == want_code

    printed = capsys.readouterr()
    assert printed.out == f"{phase}: so it went\n"
    assert f"{phase}: 1 landed" in printed.err


def test_an_approval_that_is_waited_for_is_not_given_where_no_service_would_carry_it_out(
    cluster: FakeCluster, capsys: Captured
) -> None:
    add(cluster, PROPOSED)
    cluster.objects[LEASES.plural].clear()
    assert run(["approve", "plan-1", "--uid=uid-plan-1", "--wait"]) == 1
    wanted = "berth: no descheduler has ever run: install Berth's chart; nothing was approved"
    assert capsys.readouterr().err.splitlines()[-1] == wanted
    assert "approved" not in spec_of(cluster, "plan-1")
    assert run(["approve", "plan-1", "--uid=uid-plan-1"]) == 0
    assert spec_of(cluster, "plan-1")["approved"] is True


@pytest.mark.parametrize("mode", ["Plan", "Approve", "Auto"])
def test_an_abort_is_asked_for_and_not_waited_for_where_no_service_would_end_the_plan(
    cluster: FakeCluster, capsys: Captured, mode: str
) -> None:
    add(cluster, plan("plan-1", "Running", mode=mode))
    cluster.objects[LEASES.plural].clear()
    assert run(["abort", "plan-1", "--wait", "--timeout", "1h"]) == 1
    wanted = "berth: no descheduler has ever run: install Berth's chart; the plan ends when one is there"
    assert capsys.readouterr().err.splitlines()[-1] == wanted
    assert spec_of(cluster, "plan-1")["aborted"] is True


def test_an_abort_of_a_plan_that_is_over_needs_no_service(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, plan("plan-1", "Succeeded"))
    cluster.objects[LEASES.plural].clear()
    assert run(["abort", "plan-1", "--wait", "--timeout", "1s"]) == 1
    assert capsys.readouterr().err == "berth: plan plan-1 is over: it is Succeeded\n"


@pytest.mark.parametrize("command", ["approve", "abort"])
def test_who_may_not_read_leases_is_told_so_and_waits(cluster: FakeCluster, capsys: Captured, command: str) -> None:
    add(cluster, plan("plan-1", "Proposed", mode="Approve"))
    cluster.faults[f"list {LEASES.plural}"] = [ForbiddenError(call("list", LEASES, LEADER_LEASE), failure(403))]
    assert run([command, "plan-1", *BY_UID[command], "--wait", "--timeout", "1s"]) == 1
    printed = capsys.readouterr().err
    assert "it is not known whether the descheduler is at work: " in printed
    assert "plan plan-1 is still Proposed after 1 s" in printed


def test_a_plan_of_a_run_by_hand_needs_no_service(cluster: FakeCluster, capsys: Captured) -> None:
    of_a_run = plan("plan-1", "Proposed")
    del of_a_run["spec"]["mode"]
    add(cluster, of_a_run)
    cluster.objects[LEASES.plural].clear()
    assert run(["approve", "plan-1", "--uid=uid-plan-1", "--wait", "--timeout", "1s"]) == 1
    assert "plan plan-1 is still Proposed after 1 s" in capsys.readouterr().err


def test_what_holds_a_plan_back_is_shown_beside_it(cluster: FakeCluster, capsys: Captured) -> None:
    said = "5 instead of 1 node could be freed without maxMoves: 1."
    held_back = {"reason": "LimitBinds", "fields": ["maxMoves"], "message": said}
    add(
        cluster, plan("plan-1", "Proposed", predicted={"nodes": 9, "moves": 1, "waves": 1, "restrictions": [held_back]})
    )
    assert said in " ".join(shown(capsys, "show", "plan-1").split())
    assert json.loads(shown(capsys, "show", "plan-1", "-o", "json"))["predicted"]["restrictions"] == [held_back]


def test_waiting_gives_up_in_time_and_says_what_may_be_missing(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED)

    assert run(["approve", "plan-1", "--uid=uid-plan-1", "--wait", "--timeout", "20s"]) == 1

    wanted = "berth: plan plan-1 is still Proposed after 20 s: is the descheduler running?"
    assert capsys.readouterr().err.splitlines()[-1] == wanted


def test_a_plan_that_is_deleted_while_it_is_waited_for_is_said(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, plan("plan-1", "Running"))

    def delete_after_the_patch(_verb: str, plural: str, name: str) -> None:
        if plural == MIGRATION_PLANS.plural and f"merge {plural} {name}" in cluster.calls:
            cluster.objects[plural].pop(("", name), None)

    cluster.before = delete_after_the_patch

    assert run(["abort", "plan-1", "--wait"]) == 1

    assert "plan plan-1 was deleted, which aborts it" in capsys.readouterr().err


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "no plan of the name to show": (["show", "other"], 2, "PLAN is 'other'; expected a name that `berth plans` lists"),
    "no plan at all": (["show"], 2, "PLAN is not given, and there is none in the cluster"),
    "no plan of the name to approve": (
        ["approve", "other"],
        2,
        "PLAN is 'other'; expected a name that `berth plans` lists",
    ),
    "no name to approve": (["approve"], 2, "Missing argument 'PLAN'"),
    "no name to abort": (["abort"], 2, "Missing argument 'PLAN'"),
    "a phase that does not exist": (["plans", "--phase", "Done"], 2, "'Done' is not one of"),
    "a timeout that is no duration": (
        ["abort", "x", "--wait", "--timeout", "soon"],
        2,
        "--timeout is 'soon'; expected a duration above zero",
    ),
    "an output that does not exist": (["plans", "--output", "xml"], 2, "'xml' is not one of"),
    "a report that cannot be written": (["show", "x", "--report", "/nowhere/x.html"], 2, "--report is"),
}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("arguments", "code", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_is_said_in_a_line(capsys: Captured, arguments: list[str], code: int, want: str) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert want in captured.err


STATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "approving one that is over": ("approve", plan("plan-1", "Succeeded"), "plan plan-1 is over: it is Succeeded"),
    "approving one that is only shown": ("approve", plan("plan-1", "Proposed", mode="Plan"), "is only shown"),
    "approving one without moves": ("approve", plan("plan-1", None, freed=None), "has no moves yet"),
    "approving one that is aborted": ("approve", plan("plan-1", "Proposed", aborted=True), "is being aborted"),
    "aborting one that is over": ("abort", plan("plan-1", "Failed"), "plan plan-1 is over: it is Failed"),
}


@pytest.mark.parametrize(("command", "before", "want"), STATES.values(), ids=STATES.keys())
def test_what_a_plans_state_does_not_allow_is_exit_code_1(
    cluster: FakeCluster, capsys: Captured, command: str, before: dict[str, Any], want: str
) -> None:
    add(cluster, before)

    assert run([command, "plan-1", *BY_UID[command]]) == 1
    assert want in capsys.readouterr().err


def test_what_the_cluster_does_not_allow_is_exit_code_2(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, PROPOSED)
    refusal = ForbiddenError(call("patch", MIGRATION_PLANS, "plan-1"), failure(403, "not you"))
    cluster.faults["patch migrationplans"] = [refusal]

    assert run(["approve", "plan-1", "--uid=uid-plan-1"]) == 2
    assert "not you" in capsys.readouterr().err


def test_a_cluster_without_the_plans_is_exit_code_2(cluster: FakeCluster, capsys: Captured) -> None:
    missing = NotFoundError(call("list", MIGRATION_PLANS, ""), failure(404, "no such resource"))
    cluster.faults["list migrationplans"] = [missing]

    assert run(["plans"]) == 2
    assert "expected one with Berth's CRDs" in capsys.readouterr().err
