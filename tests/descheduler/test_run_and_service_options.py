"""`berth run` and `berth-descheduler` as people call them: exit codes, output, and what is said of bad input."""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import datetime, timedelta
from typing import Any, TextIO

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

import log_lines
from berth_core.clock import SystemClock, format_timestamp
from berth_core.errors import InputError
from berth_core.labels import FREED_TAINT, LAST_DEFRAGMENTED_ANNOTATION
from berth_core.migration_plans import MoveState, MoveStatus, PlanPhase
from berth_descheduler import server as service
from berth_descheduler import telemetry
from berth_descheduler.cli import run as run_command
from berth_descheduler.cli.main import berth, run
from berth_descheduler.metrics import CYCLES, EMPTY_NODES, MOVES, CycleMetrics
from berth_descheduler.observers import CycleObserver
from berth_descheduler.options.policy import settings_to_serve
from berth_descheduler.options.running import cycle_settings, run_planner_settings
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.run_watch import RunWatch
from berth_descheduler.server import DeschedulerService, read_service_settings, serve
from berth_descheduler.settings import (
    Approval,
    CycleSettings,
    ExecutionSettings,
    FreedNodes,
    MoveTimeouts,
    Service,
    ServiceSettings,
)
from berth_kube.errors import ServerError
from berth_kube.resources import NODES
from berth_service.signals import stop_on_signals
from builders import FakeClock
from descheduler.cycle_settings import PLANNER, SETTINGS
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from health_port import ask, ask_state
from planner_settings import with_args, with_settings
from waiting import soon


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A small cluster in memory in place of the API server; afterwards logs go where they went before."""
    made = fragmented_cluster()
    for module in (run_command, service):
        monkeypatch.setattr(module, "connect", lambda **_: made)
    with log_lines.as_before():
        yield made


THRESHOLD = "--strategy=threshold"


# --- berth run --------------------------------------------------------------------------------------------------------


def test_a_run_prints_its_outcome_and_ends_well(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--yes", THRESHOLD]) == 0
    printed = capsys.readouterr()
    assert "3 of 3 pods landed on their targets; 2 nodes freed" in printed.out
    assert "freed: low-1, low-2" in printed.out
    assert (
        "planned: 3 moves in 2 waves take single pods off 2 nodes and free 2 of 4 nodes; 2 are empty then."
        in " ".join(printed.err.split())
    )
    assert cluster.taints() == {"low-1": [FREED_TAINT], "low-2": [FREED_TAINT]}


def test_a_run_in_json_has_one_object_on_standard_output(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--yes", THRESHOLD, "--output", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    done = said["achieved"]
    assert (done["moves"], done["landedOnTarget"], done["failed"], done["pendingPods"]) == (3, 3, 0, 0)
    assert done["freedNodes"] == said["predicted"]["freedNodes"] == ["low-1", "low-2"]
    assert said["plan"] == cluster.plan()["metadata"]["name"]
    assert {"lease", "snapshot", "plan", "move", "verify", "untaint"} <= set(said["secondsByStep"])


def test_a_run_with_a_failed_move_ends_with_one_and_says_which(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.hold = lambda reservation: cluster.set_reservation(reservation, "Failed")
    assert run(["run", "--yes", THRESHOLD]) == 1
    assert "ReservationFailed" in capsys.readouterr().out


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """Have a terminal, and yield what one types on."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as read, os.fdopen(writing, "w") as write:
        monkeypatch.setattr(run_command.sys, "stdin", read)
        monkeypatch.setattr(run_command, "_can_ask", lambda: True)
        yield write


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_run_shows_its_plan_and_is_carried_out_once_that_is_confirmed(
    cluster: FakeCluster, terminal: TextIO, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    terminal.write(answer)
    terminal.close()
    assert run(["run", THRESHOLD]) == 0
    shown = capsys.readouterr()
    before, _, after = shown.err.partition("Carry this plan out? [y/N]")
    assert "3 moves in 2 waves take single pods off 2 nodes" in before
    assert "Why not more" in before
    assert "carrying out" in after
    assert "3 of 3 pods landed on their targets" in shown.out
    assert cluster.plan()["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yesterday\n"])
def test_a_plan_that_is_not_confirmed_is_not_even_published(
    cluster: FakeCluster, terminal: TextIO, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    terminal.write(answer)
    terminal.close()
    assert run(["run", "--output", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "Declined"
    assert not cluster.objects["migrationplans"]


@pytest.mark.usefixtures("terminal")
def test_nobody_is_asked_about_nothing(cluster: FakeCluster) -> None:
    assert run(["run", "--max-moves=0"]) == 0
    assert not cluster.objects["migrationplans"]


@pytest.mark.usefixtures("terminal")
def test_a_question_that_nobody_answers_ends(cluster: FakeCluster) -> None:
    assert run(["run", "--approval-timeout=1ms"]) == 1
    assert not cluster.objects["migrationplans"]


def test_without_a_terminal_a_run_must_be_told_not_to_ask(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run"]) == 2
    assert "--yes is missing; expected it, --dry-run or --wait-for-approval where no" in capsys.readouterr().err
    assert not cluster.calls


class Stopping:
    """A request to stop that comes with a call of the run."""

    def __init__(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster = cluster
        self.stop = threading.Event()
        monkeypatch.setattr(run_command, "stop_on_signals", lambda: nullcontext(self.stop))

    def at_the_question(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> str:
            self.stop.set()
            return ""

        monkeypatch.setattr(run_command, "_can_ask", lambda: True)
        monkeypatch.setattr(run_command, "_read_answer", interrupted)

    def in_the_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def planning(*_: object) -> None:
            self.stop.set()

        monkeypatch.setattr(run_command.RunProgress, "planned", planning)

    def in_the_middle(self, _: pytest.MonkeyPatch) -> None:
        hold = self._cluster.hold

        def held(reservation: Any) -> None:  # noqa: ANN401 - as the API has it
            hold(reservation)
            self.stop.set()

        self._cluster.hold = held


Interrupt = Callable[[Stopping, pytest.MonkeyPatch], None]


@pytest.mark.parametrize("when", [Stopping.at_the_question, Stopping.in_the_plan])
def test_a_run_that_is_interrupted_before_it_begins_leaves_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: Interrupt
) -> None:
    when(Stopping(cluster, monkeypatch), monkeypatch)
    asked = () if when is Stopping.at_the_question else ("--yes",)
    assert run(["run", *asked]) == 130
    assert "Asked to stop before anything was moved." in capsys.readouterr().out
    assert not cluster.objects["migrationplans"]


def test_a_run_that_is_interrupted_in_the_middle_says_what_stays(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Stopping(cluster, monkeypatch).in_the_middle(monkeypatch)
    assert run(["run", "--yes", THRESHOLD, "--per-wave=1"]) == 130
    said = capsys.readouterr()
    skipped = [one for one in cluster.plan()["status"]["moves"] if one["state"] == "Skipped"]
    assert "Stopped: asked to stop." in said.out
    assert "stopping: nothing new begins" in said.err
    assert f"interrupted: {len(skipped)} pods stay where they were; berth show " in said.err
    assert len(skipped) > 1
    assert cluster.taints() == {}


def test_a_dry_run_changes_nothing(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--dry-run", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "DryRun"
    assert not cluster.objects["migrationplans"]


@pytest.mark.parametrize(
    ("option", "value", "want"),
    [
        ("--reserve-timeout", "soon", "--reserve-timeout is 'soon'; expected a duration above zero"),
        ("--land-timeout", "0s", "--land-timeout is '0s'; expected a duration above zero"),
        ("--evict-timeout", "-1m", "--evict-timeout is '-1m'; expected a duration above zero"),
        ("--reservation-ttl", "1 week", "--reservation-ttl is '1 week'; expected a duration above zero"),
        ("--max-duration", "0s", "--max-duration is '0s'; expected a duration above zero"),
        ("--pending-wait", "-1s", "--pending-wait is '-1s'; expected a duration from 0 on"),
        ("--pod-cool-down", "an hour", "--pod-cool-down is 'an hour'; expected a duration from 0 on"),
        ("--annotate-freed", "remove-me", "--annotate-freed is 'remove-me'; expected KEY=VALUE"),
        ("--max-moves-per-node", "0", "--max-moves-per-node is 0; expected a whole number from 1 on"),
        ("--max-moves-per-namespace", "-1", "--max-moves-per-namespace is -1; expected a whole number from 1 on"),
        ("--max-failed-share", "1.5", "1.5 is not in the range 0<=x<=1"),
        ("--low-threshold", "lots", "--low-threshold is 'lots'; expected a percentage from 0 to 100"),
        ("--include-namespace", "nowhere", "--include-namespace is 'nowhere'; expected a namespace of the cluster"),
        ("--output", "xml", "'xml' is not one of 'table', 'json', 'yaml'"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_a_bad_option_gets_one_clear_line(
    option: str, value: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--yes", f"{option}={value}"]) == 2
    printed = capsys.readouterr()
    assert want in printed.err
    assert "Traceback" not in printed.err


SAFETY = (
    "--pending-wait=0s",
    "--pod-cool-down=90m",
    "--min-freed-nodes=2",
    "--max-replans=0",
    "--taint-freed",
    "--annotate-freed=example.com/remove=a=b",
)


def read_options(*arguments: str) -> dict[str, Any]:
    """Return the options of a run as the program reads them."""
    seen: dict[str, Any] = {}

    def keep(options: dict[str, Any], **_: Any) -> CycleSettings:  # noqa: ANN401 - passed on
        seen.update(options)
        raise InputError("options", None, "no more")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_command, "cycle_settings", keep)
        run(["run", *arguments])
    return seen


@pytest.mark.parametrize("command", ["plan", "run", "drain"])
def test_the_help_lists_options_under_headings(command: str) -> None:
    text = CliRunner().invoke(berth, [command, "--help"]).output

    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    limits = text.partition("\nLimits:\n")[2].partition("\n\n")[0]
    assert headings[0] in {"Cluster:", "Options:"}
    assert headings[-1] == "Options:"
    assert len(headings) == len(set(headings)) > 4
    assert "--per-wave" in limits
    assert text.count("--per-wave") == 1


def test_the_options_become_settings() -> None:
    waits = ("--approval-timeout=1h", "--ready-timeout=2m", "--lease-seconds=4", "--max-duration=2h")
    settings = cycle_settings(read_options("--wait-for-approval", *waits, "--namespace=own"), trigger="Manual")
    assert settings.approval is Approval.APPROVE
    assert settings.approval_seconds == 3600
    assert settings.execution.timeouts.ready_seconds == 120
    assert settings.execution.max_seconds == 7200
    assert (settings.lease_seconds, settings.lease_wait_seconds) == (4, 9)
    assert settings.namespace == "own"


def test_replacements_have_their_deployments_deadline_unless_a_time_is_given() -> None:
    for options, want in (((), (120, True)), (("--ready-timeout=20s",), (20, False))):
        waits = cycle_settings(read_options(*options), trigger="Manual").execution.timeouts
        assert (waits.ready_seconds, waits.heeds_progress_deadlines) == want


def test_whether_control_plane_nodes_take_pods_reaches_the_planner_of_a_run_and_of_the_service() -> None:
    for settings_of in (settings_to_serve, run_planner_settings):
        for said in ((), ("--control-plane-nodes",)):
            with serve.make_context("berth-descheduler", list(said)) as context:
                assert settings_of(context.params).scope.control_plane_nodes is bool(said)


def test_a_run_keeps_off_control_plane_nodes_unless_told(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("high-1", "high-2"):
        cluster.merge_patch(NODES, name, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})
    assert run(["run", "--yes", THRESHOLD]) == 0
    assert "Nothing to move" in " ".join(capsys.readouterr().out.split())
    assert run(["run", "--yes", THRESHOLD, "--control-plane-nodes"]) == 0
    assert "3 of 3 pods landed on their targets" in capsys.readouterr().out


@pytest.mark.parametrize("hours", [1, 300, 10_000])
def test_a_reservation_may_live_as_long_as_one_likes(hours: int) -> None:
    settings = cycle_settings(read_options(f"--reservation-ttl={hours}h0.25s"), trigger="Manual")
    assert settings.execution.reservation_ttl == timedelta(hours=hours, seconds=0.25)


def test_the_options_about_the_safety_of_others_become_settings() -> None:
    settings = cycle_settings(read_options(*SAFETY), trigger="Manual")
    assert settings.execution.pending_wait_seconds == 0
    assert settings.pod_cool_down == timedelta(minutes=90)
    assert (settings.min_freed_nodes, settings.max_replans) == (2, 0)
    assert settings.freed == FreedNodes(taint=True, annotations={"example.com/remove": "a=b"})
    assert cycle_settings(read_options(), trigger="Manual").freed == FreedNodes(taint=True)
    assert cycle_settings(read_options("--no-taint-freed"), trigger="Manual").freed.nothing
    assert cycle_settings(read_options(), trigger="Manual").max_replans == 3


def test_a_reservation_lives_longer_than_all_that_its_move_may_wait_for() -> None:
    short = ExecutionSettings(reservation_ttl=timedelta(minutes=1))
    waits = short.timeouts
    assert short.ttl.total_seconds() > (
        waits.reserve_seconds + waits.evict_seconds + waits.land_seconds + waits.ready_seconds
    )
    assert ExecutionSettings(reservation_ttl=timedelta(hours=1)).ttl == timedelta(hours=1)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: MoveTimeouts(reserve_seconds=0), "reserve_seconds"),
        (lambda: MoveTimeouts(shutdown_seconds=-1), "shutdown_seconds"),
        (lambda: ExecutionSettings(workers=0), "workers"),
        (lambda: ExecutionSettings(max_failed_share=-0.1), "max_failed_share"),
        (lambda: ExecutionSettings(status_interval_seconds=-1), "status_interval_seconds"),
        (lambda: CycleSettings(adoption_seconds=0), "adoption_seconds"),
        (lambda: CycleSettings(min_freed_nodes=-1), "min_freed_nodes"),
        (lambda: CycleSettings(pod_cool_down=timedelta(seconds=-1)), "pod_cool_down"),
        (lambda: ExecutionSettings(pending_wait_seconds=-1), "pending_wait_seconds"),
        (lambda: ExecutionSettings(wave_seconds=0), "wave_seconds"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(make: Any, field: str) -> None:  # noqa: ANN401 - a maker
    with pytest.raises(InputError, match=field):
        make()


# --- the service ------------------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:  # noqa: ANN401 - click's result
    return CliRunner().invoke(serve, ["--health-address=127.0.0.1:0", *arguments], standalone_mode=False)


def test_once_it_runs_one_cycle(cluster: FakeCluster) -> None:
    assert invoke("--once").return_value == 0
    assert cluster.plan()["status"]["phase"] == "Succeeded"
    assert cluster.plan()["spec"]["trigger"] == "Once"


def test_once_with_a_failure_it_ends_with_one(cluster: FakeCluster) -> None:
    cluster.hold = lambda reservation: cluster.set_reservation(reservation, "Failed")
    assert invoke("--once").return_value == 1


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--once", "--interval=5m"), "what to do is --once and --interval; expected one of --policies"),
        (("--policies", "--once"), "what to do is --policies and --once; expected one of --policies"),
        (
            ("--strategy=consolidate",),
            "--strategy is 'consolidate'; expected nothing beside the policies of the cluster",
        ),
        (("--policies", "--wait-for-approval"), "--wait-for-approval is True; expected nothing beside the policies"),
        (("--interval=often",), "--interval is 'often'; expected a duration above zero"),
        (("--once", "--health-address=here"), "--health-address is 'here'; expected HOST:PORT"),
        (("--once", "--health-address=127.0.0.1:99999"), "expected HOST:PORT"),
    ],
)
def test_the_service_refuses_options_that_cannot_work(arguments: tuple[str, ...], want: str) -> None:
    error = invoke(*arguments).exception
    assert isinstance(error, InputError)
    assert want in str(error)


def test_at_an_interval_a_cycle_that_fails_does_not_end_it() -> None:
    cluster, stop = fragmented_cluster(), threading.Event()
    cluster.faults["list nodes"] = [ServerError(call("list", NODES, ""), failure(503))]
    made = DeschedulerService(cluster, SystemClock(), SETTINGS, PLANNER, stop)  # type: ignore[arg-type]
    thread = threading.Thread(target=made.run_at, args=[timedelta(seconds=0.01)])
    thread.start()
    try:
        soon("a later cycle moved everything", lambda: cluster.pods_on("low-1") == [])
    finally:
        stop.set()
        thread.join(60)
    assert made.registry.get_sample_value("berth_cycle_failures_total") == 1
    assert not thread.is_alive()


class ShiftedClock(SystemClock):
    """The real clock with its wall time moved forward, as by a long interval."""

    shift = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.shift


def test_each_cycle_of_the_service_counts_a_cool_down_from_its_own_time(cluster: FakeCluster) -> None:
    clock = ShiftedClock()
    clock.shift = -timedelta(minutes=61)
    drained = {"metadata": {"annotations": {LAST_DEFRAGMENTED_ANNOTATION: format_timestamp(clock.now())}}}
    for name in ("low-1", "low-2"):
        cluster.merge_patch(NODES, name, drained)
    resting = with_settings(with_args(PLANNER, cool_down=timedelta(hours=1)), now=clock.now())
    made = DeschedulerService(cluster, clock, SETTINGS, resting, threading.Event())  # type: ignore[arg-type]

    assert made.run_once().verdict is Verdict.NOTHING_TO_MOVE
    clock.shift = timedelta(0)
    assert made.run_once().verdict is Verdict.CARRIED_OUT


def service_options(**options: str) -> dict[str, Any]:
    said = {"interval": None, "health_address": "127.0.0.1:0", "plan_retention": "720h", **options}
    return {"policies": False, "once": False, **said}


@pytest.mark.parametrize(
    ("said", "want"), {"720h": timedelta(days=30), "none": None, "90m": timedelta(minutes=90)}.items()
)
def test_plans_of_no_policy_are_kept_for_as_long_as_asked(said: str, want: timedelta | None) -> None:
    assert read_service_settings(service_options(plan_retention=said)).plan_retention == want


@pytest.mark.parametrize("said", ["never", "0s", "-1h", ""])
def test_a_retention_that_is_no_length_of_time_is_refused(said: str) -> None:
    with pytest.raises(InputError, match=f"--plan-retention is '{said}'; expected a duration above zero"):
        read_service_settings(service_options(plan_retention=said))


def test_without_being_told_it_serves_the_policies() -> None:
    settings = read_service_settings(service_options())
    assert (settings.service, settings.interval) == (Service.POLICIES, None)


def test_an_interval_is_read_as_a_duration() -> None:
    settings = read_service_settings(service_options(interval="1h30m", health_address="0.0.0.0:8081"))
    assert settings.interval == timedelta(minutes=90)
    assert (settings.health_host, settings.health_port) == ("0.0.0.0", 8081)  # noqa: S104 - what a cluster sets


def test_a_signal_asks_to_stop_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is not None


# --- health and metrics -----------------------------------------------------------------------------------------------


class AskedWhileItRuns:
    """A service that asks its own health port as soon as it runs."""

    def __init__(self, *, ready: bool) -> None:
        self.registry = CollectorRegistry()
        self.metrics = CycleMetrics(self.registry, FakeClock())
        self.clock = FakeClock()
        self.run_watch = RunWatch(self.clock)
        self.ready = ready
        self.logs: list[Any] = []

    def readiness(self) -> dict[str, object]:
        return {"ready": self.ready, "running": True}

    def run(self, _how: ServiceSettings) -> bool:
        address = self.logs[0][telemetry.KEY_ADDRESS]
        assert ask_state(address, "/healthz") == (200, {"healthy": True, "runSilentSeconds": 0})
        assert ask_state(address, "/readyz") == (200 if self.ready else 503, self.readiness())
        assert "berth_moves_open" in ask(address, "/metrics")[2]
        return True


@pytest.mark.parametrize("ready", [True, False])
def test_the_service_answers_probes_and_scrapes(*, ready: bool) -> None:
    asked = AskedWhileItRuns(ready=ready)
    how = read_service_settings(service_options())
    with capture_logs() as asked.logs:
        assert service._serve(asked, how, SETTINGS, lambda: None) == 0  # type: ignore[arg-type]


class StuckWhileItRuns(AskedWhileItRuns):
    """A service whose run does nothing for an hour, and then goes on."""

    def run(self, _how: ServiceSettings) -> bool:
        address = self.logs[0][telemetry.KEY_ADDRESS]
        with self.run_watch.running() as clock:
            self.clock.advance(3600)
            assert ask_state(address, "/healthz") == (503, {"healthy": False, "runSilentSeconds": 3600})
            clock.sleep(1)
            assert ask_state(address, "/healthz")[0] == 200
            self.clock.advance(3600)
        assert ask_state(address, "/healthz")[0] == 200
        return True


def test_a_service_whose_run_is_stuck_is_not_healthy() -> None:
    stuck = StuckWhileItRuns(ready=True)
    with capture_logs() as stuck.logs:
        assert service._serve(stuck, read_service_settings(service_options()), SETTINGS, lambda: None) == 0  # type: ignore[arg-type]


@pytest.mark.usefixtures("cluster")
def test_a_health_address_that_is_taken_is_said() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        error = invoke("--once", f"--health-address={taken}").exception
    assert isinstance(error, InputError)
    assert f"--health-address is '{taken}'; expected a free local address" in str(error)


def test_metrics_count_what_cycles_do() -> None:
    registry, clock = CollectorRegistry(), FakeClock()
    metrics = CycleMetrics(registry, clock)
    statuses = (
        MoveStatus(namespace="a", pod="1", state=MoveState.LANDED),
        MoveStatus(namespace="a", pod="2", state=MoveState.FAILED, reason="EvictionBlocked"),
    )
    metrics.moves_changed((*statuses, MoveStatus(namespace="a", pod="3")), 0)
    assert registry.get_sample_value("berth_moves_open") == 1
    done = PlanOutcome(plan="p", phase=PlanPhase.PARTIAL, statuses=statuses, freed_nodes=("n",))
    metrics.cycle_ended(Outcome(Verdict.CARRIED_OUT, plan=done))
    assert registry.get_sample_value(CYCLES, {"verdict": "CarriedOut"}) == 1
    evicted = {"method": "Evict"}
    assert registry.get_sample_value(MOVES, evicted | {"state": "Failed", "reason": "EvictionBlocked"}) == 1
    assert registry.get_sample_value("berth_freed_nodes_total") == 1
    assert registry.get_sample_value("berth_last_cycle_timestamp_seconds") == clock.now().timestamp()
    assert registry.get_sample_value("berth_moves_open") == 0


def test_metrics_show_how_fragmented_the_cluster_was() -> None:
    stop = threading.Event()
    made = DeschedulerService(fragmented_cluster(), SystemClock(), SETTINGS, PLANNER, stop)  # type: ignore[arg-type]
    made.run_once()
    assert made.registry.get_sample_value("berth_nodes") == 4
    assert made.registry.get_sample_value(EMPTY_NODES) == 0
    assert made.registry.get_sample_value("berth_requested_ratio", {"resource": "cpu"}) == pytest.approx(0.45)
    assert made.registry.get_sample_value("berth_cycle_phase_seconds_count", {"phase": "move"}) == 1


def test_an_observer_may_ignore_everything() -> None:
    observer = CycleObserver()
    observer.plan_begun("plan", 1, "uid")
    observer.cycle_ended(Outcome(Verdict.LEASE_HELD))
    assert vars(observer) == {}
