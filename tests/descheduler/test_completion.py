"""What the shell is offered after the name of a command, and that it never waits long for it."""

import json
import threading
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from berth_core.errors import InputError
from berth_descheduler.cli.main import berth
from berth_descheduler.options import completion
from descheduler.stored_bodies import plan, policy
from scripted_server import ScriptedServer, Silence, page, refusal, write_kubeconfig

PLANS = "/apis/berth.volcano.sh/v1alpha1/migrationplans"
POLICIES = "/apis/berth.volcano.sh/v1alpha1/deschedulerpolicies"
TIME_FOR_THE_REST = 100.0
"""Above what completion waits: for click, imports and a busy machine; what does not answer takes longer."""


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have completion wait also for a busy machine."""
    monkeypatch.setattr(completion, "LONGEST_SECONDS", 60.0)


def offered(*words: str, incomplete: str = "") -> list[str]:
    found = ShellComplete(berth, {}, "berth", "_BERTH_COMPLETE").get_completions(list(words), incomplete)
    return [item.value for item in found]


@pytest.mark.usefixtures("_patient")
def test_the_names_of_plans_are_offered(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.on("GET", PLANS, page(plan("plan-b"), plan("plan-a"), plan("other")))
        config = ("--kubeconfig", server.kubeconfig(tmp_path))

        assert offered("show", *config) == ["other", "plan-a", "plan-b"]
        assert offered("show", *config, incomplete="plan-") == ["plan-a", "plan-b"]
        assert offered("show", *config, incomplete="x") == []


@pytest.mark.usefixtures("_patient")
def test_only_plans_that_the_command_can_take_are_offered(tmp_path: Path) -> None:
    plans = (
        plan("asked-for", None, freed=None),
        plan("waits", "Proposed"),
        plan("waits-and-is-approved", "Proposed", approved=True),
        plan("only-shown", "Proposed", mode="Plan"),
        plan("runs", "Running", approved=True),
        plan("is-aborted", "Running", approved=True, aborted=True),
        plan("over", "Succeeded", approved=True),
    )
    with ScriptedServer() as server:
        server.on("GET", PLANS, page(*plans))
        config = ("--kubeconfig", server.kubeconfig(tmp_path))

        assert offered("approve", *config) == ["waits"]
        assert offered("abort", *config) == ["asked-for", "only-shown", "runs", "waits", "waits-and-is-approved"]
        assert len(offered("show", *config)) == len(plans)


@pytest.mark.usefixtures("_patient")
def test_the_names_of_nodes_are_offered_once(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.on("GET", "/api/v1/nodes", page(*({"metadata": {"name": name}} for name in ("n-2", "n-1"))))
        config = ("--kubeconfig", server.kubeconfig(tmp_path))

        assert offered("drain", *config) == ["n-1", "n-2"]
        assert offered("drain", *config, "n-1") == ["n-2"]


@pytest.mark.usefixtures("_patient")
def test_the_names_of_namespaces_are_offered(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.on("GET", "/api/v1/namespaces", page(*({"metadata": {"name": name}} for name in ("shop", "ml"))))
        config = ("--kubeconfig", server.kubeconfig(tmp_path))

        assert offered("calendar", *config, "-n") == ["ml", "shop"]
        assert offered("plan", *config, "--exclude-namespace", incomplete="s") == ["shop"]


def test_contexts_of_the_kubeconfig_and_strategies_are_offered_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(completion, "connect", lambda **_: pytest.fail("nothing is to be asked for"))
    contexts = [{"name": name, "context": {"cluster": name, "user": name}} for name in ("prod", "dev")]
    file = tmp_path / "config"
    file.write_text(json.dumps({"contexts": contexts}), encoding="utf-8")

    assert offered("plans", "--kubeconfig", str(file), "--context") == ["dev", "prod"]
    assert offered("plans", "--kubeconfig", str(tmp_path / "missing"), "--context") == []
    assert offered("run", "--strategy", incomplete="m") == ["make-room", "minimize-fragmentation"]


@pytest.mark.usefixtures("_patient")
def test_the_names_of_policies_are_offered(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.on("GET", POLICIES, page(policy("nightly"), policy("hourly")))
        config = ("--kubeconfig", server.kubeconfig(tmp_path))

        assert offered("policies", "run", *config) == ["hourly", "nightly"]
        assert offered("plans", *config, "--policy", incomplete="n") == ["nightly"]


def test_commands_and_options_are_offered_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "connect", lambda **_: pytest.fail("nothing is to be asked for"))

    assert offered(incomplete="pla") == ["plan", "plans"]
    assert offered("plan", "--output", incomplete="y") == ["yaml"]
    assert "--output" in offered("fragmentation", incomplete="--")


def test_a_cluster_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "LONGEST_SECONDS", 0.3)
    with ScriptedServer() as server:
        server.on("GET", PLANS, Silence(120.0, then=page()))
        begun = time.monotonic()

        assert offered("show", "--kubeconfig", server.kubeconfig(tmp_path)) == []
        assert time.monotonic() - begun < TIME_FOR_THE_REST


def test_credentials_that_take_their_time_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    come = threading.Event()

    def hang(**_: object) -> None:
        come.wait(120)
        raise InputError("credentials", None, "some")

    monkeypatch.setattr(completion, "LONGEST_SECONDS", 0.3)
    monkeypatch.setattr(completion, "connect", hang)
    begun = time.monotonic()

    assert offered("show") == []
    assert time.monotonic() - begun < TIME_FOR_THE_REST
    come.set()


@pytest.mark.parametrize("reason", ["no kubeconfig", "nobody answers", "forbidden"])
def test_what_goes_wrong_offers_nothing_and_says_nothing(
    reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer() as server:
        server.on("GET", PLANS, refusal(403, "Forbidden", "not you"))
        path = {
            "no kubeconfig": str(tmp_path / "missing"),
            "nobody answers": write_kubeconfig(tmp_path, "http://127.0.0.1:1"),
            "forbidden": server.kubeconfig(tmp_path),
        }[reason]

        assert offered("show", "--kubeconfig", path) == []
    assert capsys.readouterr() == ("", "")
