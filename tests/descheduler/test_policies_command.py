"""`berth policies` and `berth policies run` as people and machines call them."""

import json
from typing import Any

import pytest

from berth_core.policies import Trigger
from berth_descheduler.cli import plans, policies
from berth_descheduler.cli.main import run
from berth_descheduler.report.policies import trigger_in_words
from berth_kube.errors import NotFoundError
from berth_kube.resources import DESCHEDULER_POLICIES, LEASES, MIGRATION_PLANS
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure
from descheduler.stored_bodies import how, move, policy

Captured = pytest.CaptureFixture[str]

NIGHTLY = policy(
    "nightly",
    trigger={"cron": "0 2 * * *", "timeZone": "Europe/Berlin"},
    mode="Auto",
    status={
        "lastRunTime": "2026-11-21T01:00:00Z",
        "lastVerdict": "CarriedOut",
        "lastOutcome": "3 of 3 pods landed on their targets; 2 nodes freed in 9.1 s.",
        "lastPlan": "plan-20261121-010000",
        "nextRunTime": "2026-11-22T01:00:00Z",
        "warnings": ["numberOfNodes is never reached"],
        "conditions": [
            {"type": "Valid", "status": "True", "reason": "Accepted"},
            {"type": "Scheduled", "status": "True", "reason": "Cron"},
        ],
    },
)
BROKEN = policy(
    "broken",
    trigger={"interval": "30m"},
    suspend=True,
    status={
        "conditions": [
            {
                "type": "Valid",
                "status": "False",
                "reason": "InvalidField",
                "message": "spec.profiles[0].pluginConfig[0].name is 'Nope'; expected a plugin",
            }
        ]
    },
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """An empty cluster in memory in place of the API server; waiting takes no time."""
    made = FakeCluster()
    made.start_service()
    monkeypatch.setattr(policies, "connect", lambda **_: made)
    for commands in (plans, policies):
        monkeypatch.setattr(commands, "SystemClock", FakeClock)
    monkeypatch.setattr(plans, "SystemClock", FakeClock)
    return made


def add(cluster: FakeCluster, *policies: dict[str, Any]) -> FakeCluster:
    for one in policies:
        cluster.add(DESCHEDULER_POLICIES, one)
    return cluster


def shown(capsys: Captured, *arguments: str) -> str:
    assert run(["policies", *arguments]) == 0
    return capsys.readouterr().out


def test_policies_are_listed_with_trigger_validity_and_last_outcome(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, NIGHTLY, BROKEN, policy("new"))

    text = shown(capsys, "--output", "table")

    lines = {line.split()[0]: line for line in text.splitlines() if not line.startswith(" ")}
    broken, nightly, new = lines["broken"], lines["nightly"], lines["new"]
    assert "every 30m (suspended)" in broken
    assert " no " in broken
    assert "expected a plugin" in " ".join(text.split())
    assert "0 2 * * * Europe/Berlin" in nightly
    assert "11h ago" in nightly
    assert "in 13h" in nightly
    assert "3 of 3 pods landed" in nightly
    assert "on request" in new
    assert "never" in new


def test_a_wide_table_of_policies_also_says_their_limits(cluster: FakeCluster, capsys: Captured) -> None:
    limited = policy("limited", nodeSelector="pool=batch", limits={"maxMoves": 20}, moves="Surge")
    add(cluster, limited)

    narrow, wide = shown(capsys), shown(capsys, "-o", "wide")

    assert "most moves" not in narrow
    assert [one for one in wide.split() if one in {"pool=batch", "20", "Surge"}] == ["pool=batch", "20", "Surge"]


def test_policies_are_named_as_kubectl_takes_them(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, NIGHTLY, BROKEN)

    lines = shown(capsys, "-o", "name").splitlines()

    assert lines == [f"deschedulerpolicy.{DESCHEDULER_POLICIES.group}/{name}" for name in ("broken", "nightly")]


def test_the_json_has_what_is_promised(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, NIGHTLY, BROKEN)

    broken, nightly = json.loads(shown(capsys, "--output", "json"))["items"]

    assert nightly == {
        "name": "nightly",
        "mode": "Auto",
        "suspend": False,
        "trigger": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"},
        "nodeSelector": "",
        "valid": True,
        "invalidBecause": "",
        "warnings": ["numberOfNodes is never reached"],
        "lastRunTime": "2026-11-21T01:00:00Z",
        "lastVerdict": "CarriedOut",
        "lastOutcome": "3 of 3 pods landed on their targets; 2 nodes freed in 9.1 s.",
        "lastPlan": "plan-20261121-010000",
        "nextRunTime": "2026-11-22T01:00:00Z",
        "fragmentation": None,
        "conditions": NIGHTLY["status"]["conditions"],
    }
    assert (broken["valid"], broken["suspend"], broken["lastRunTime"], broken["lastPlan"]) == (False, True, None, "")
    assert broken["invalidBecause"].startswith("spec.profiles[0]")


def test_without_policies_it_is_said_what_one_is(cluster: FakeCluster, capsys: Captured) -> None:
    assert "There are no policies" in shown(capsys)
    assert [call.verb for call in cluster.calls] == ["list"]
    assert run(["policies", "--output", "json"]) == 0
    assert "There are no policies" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trigger", "want"),
    [
        (Trigger(cron="0 2 * * *"), "0 2 * * *"),
        (Trigger(cron="0 2 * * *", time_zone="UTC"), "0 2 * * * UTC"),
        (Trigger(interval="30m"), "every 30m"),
        (Trigger(), "on request"),
    ],
)
def test_a_trigger_in_words(trigger: Trigger, want: str) -> None:
    assert trigger_in_words(trigger) == want


# --- run --------------------------------------------------------------------------------------------------------------


def requested(cluster: FakeCluster) -> dict[str, Any]:
    (found,) = cluster.objects[MIGRATION_PLANS.plural].values()
    return found


def test_a_run_is_asked_for_in_the_policys_mode(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, NIGHTLY)

    assert run(["policies", "run", "nightly"]) == 0

    made = requested(cluster)
    assert (made["spec"]["policy"], made["spec"]["mode"], made["spec"]["trigger"]) == ("nightly", "Auto", "Request")
    assert f"berth show {made['metadata']['name']}" in capsys.readouterr().err


def test_another_mode_can_be_asked_for(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, NIGHTLY)

    assert run(["policies", "run", "nightly", "--mode", "plan", "--output", "json"]) == 0

    assert requested(cluster)["spec"]["mode"] == "Plan"
    assert json.loads(capsys.readouterr().out)["phase"] == "Requested"


def test_options_may_stand_before_run_as_well_as_after_it(
    cluster: FakeCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(cluster, NIGHTLY)
    asked: list[dict[str, Any]] = []

    def connect(**which: Any) -> FakeCluster:  # noqa: ANN401 - whatever is asked for
        asked.append(which)
        return cluster

    monkeypatch.setattr(policies, "connect", connect)

    assert run(["policies", "--kubeconfig", "mine", "--output", "json", "run", "nightly", "--context", "there"]) == 0

    assert (asked[0]["kubeconfig"], asked[0]["context"]) == ("mine", "there")
    assert json.loads(capsys.readouterr().out)["policy"] == "nightly"


ENDINGS = {
    "in the mode Plan the plan is only made": ("Plan", "Proposed", 0, "Proposed"),
    "in the mode Approve it waits for people": ("Approve", "Proposed", 0, "Proposed"),
    "in the mode Auto it is over": ("Auto", "Succeeded", 0, "Succeeded"),
    "a plan that fails is exit code 1": ("Auto", "Failed", 1, "Failed"),
}


@pytest.mark.parametrize(("mode", "phase", "want_code", "want"), ENDINGS.values(), ids=ENDINGS.keys())
def test_waiting_ends_when_nothing_more_happens_by_itself(
    cluster: FakeCluster, capsys: Captured, mode: str, phase: str, want_code: int, want: str
) -> None:
    add(cluster, NIGHTLY)
    looks: list[str] = []

    def serve(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("get", MIGRATION_PLANS.plural):
            looks.append(name)
            told = requested(cluster)
            if len(looks) == 3:
                told["spec"] |= {"moves": [move()], "predicted": {"nodes": 4, "moves": 1, "waves": 1}}
                told["status"] = {"phase": phase, "moves": [how()], "message": "made"}

    cluster.before = serve

    assert run(["policies", "run", "nightly", "--mode", mode, "--wait"]) == want_code
    assert len(looks) == 3
    assert capsys.readouterr().out.startswith(f"{want}: made")


def test_in_the_mode_auto_a_proposed_plan_is_waited_for(cluster: FakeCluster, capsys: Captured) -> None:
    add(cluster, NIGHTLY)

    def serve(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("get", MIGRATION_PLANS.plural):
            requested(cluster)["status"] = {"phase": "Proposed"}

    cluster.before = serve

    assert run(["policies", "run", "nightly", "--wait", "--timeout", "5s"]) == 1
    assert "is still Proposed after 5 s" in capsys.readouterr().err


def test_a_run_that_is_waited_for_is_not_asked_for_where_no_service_would_make_it(
    cluster: FakeCluster, capsys: Captured
) -> None:
    add(cluster, NIGHTLY)
    cluster.objects[LEASES.plural].clear()
    assert run(["policies", "run", "nightly", "--wait"]) == 1
    wanted = "berth: no descheduler has ever run: install Berth's chart; nothing was asked for"
    assert capsys.readouterr().err.splitlines()[-1] == wanted
    assert cluster.objects[MIGRATION_PLANS.plural] == {}
    assert run(["policies", "run", "nightly"]) == 0


REFUSED: dict[str, tuple[list[str], str]] = {
    "no policy of the name": (["run", "other"], "POLICY is 'other'; expected a name that `berth policies` lists"),
    "no name": (["run"], "Missing argument 'POLICY'"),
    "a mode that does not exist": (["run", "nightly", "--mode", "Now"], "'Now' is not one of"),
    "a timeout that is none": (["run", "nightly", "--timeout", "0s"], "--timeout is '0s'"),
    "a command that does not exist": (["stop"], "No such command 'stop'"),
    "an output that does not exist": (["--output", "xml"], "'xml' is not one of"),
}


@pytest.mark.parametrize(("arguments", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_input_is_exit_code_2(cluster: FakeCluster, capsys: Captured, arguments: list[str], want: str) -> None:
    add(cluster, NIGHTLY)

    assert run(["policies", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert want in captured.err
    assert not cluster.objects[MIGRATION_PLANS.plural]


def test_a_cluster_without_policies_of_ours_is_exit_code_2(cluster: FakeCluster, capsys: Captured) -> None:
    missing = NotFoundError(call("list", DESCHEDULER_POLICIES, ""), failure(404, "no such resource"))
    cluster.faults[f"list {DESCHEDULER_POLICIES.plural}"] = [missing]

    assert run(["policies"]) == 2
    assert "expected one with Berth's CRDs" in capsys.readouterr().err
