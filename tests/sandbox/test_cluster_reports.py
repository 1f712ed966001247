"""A cluster test that fails has in its report what the API server said of webhooks, and the end of operators' logs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.records import SandboxRecord
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster_reports import note_operator, pytest_runtest_makereport
from waiting import soon

SPEAKS = "import time\nfor n in range(200): print('line', n, flush=True)\ntime.sleep(600)"
FAILED_OPEN = 'Failed calling webhook, failing open gate.berth.volcano.sh: failed calling webhook "gate"'


def make_sandbox(root: Path, *lines: str) -> Sandbox:
    """Return the handle of a sandbox of which there is nothing but the API server's log."""
    folder = SandboxFolder(root)
    folder.make()
    folder.log(Component.API_SERVER).write_text("\n".join(lines))
    return Sandbox(folder, cast("SandboxRecord", None), None)


@pytest.fixture
def sandbox_of_test(tmp_path: Path) -> Sandbox:
    return make_sandbox(tmp_path / "one", "started", FAILED_OPEN, "something else")


@pytest.fixture
def operator_beside(sandbox_of_test: Sandbox, tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess([sys.executable, "-c", SPEAKS], tmp_path / "berth-operator-1.log") as process:
        note_operator(process, sandbox_of_test)
        soon("it has said all", lambda: "line 199" in process.tail(1))
        yield process


def sections(outcome: Literal["passed", "failed"], marker: str | None, **funcargs: object) -> dict[str, str]:
    """Return what is added to the report of a test with such an outcome, marker and fixtures."""
    report = pytest.TestReport("test_x", ("x.py", 1, "test_x"), {}, outcome, None, "call")
    item = SimpleNamespace(funcargs=funcargs, get_closest_marker=lambda name: name if name == marker else None)
    adding = pytest_runtest_makereport(cast("Any", item), cast("Any", None))
    next(adding)
    with pytest.raises(StopIteration) as done:
        adding.send(report)
    assert done.value.value is report
    return dict(report.sections)


def test_a_failure_shows_the_webhooks_that_failed_and_the_end_of_the_operators_log(
    sandbox_of_test: Sandbox,
    operator_beside: ServiceProcess,  # noqa: ARG001 - it runs beside the test
) -> None:
    (webhooks, operator) = sections("failed", "cluster", sandbox=sandbox_of_test, other=1).items()
    assert webhooks == ("webhooks in the log of kube-apiserver", FAILED_OPEN)
    assert operator[0] == "the end of berth-operator-1.log"
    assert operator[1].splitlines() == [f"line {number}" for number in range(120, 200)]


def test_operators_of_another_control_plane_and_those_that_have_ended_are_left_out(
    sandbox_of_test: Sandbox, operator_beside: ServiceProcess, tmp_path: Path
) -> None:
    other = make_sandbox(tmp_path / "other")
    assert list(sections("failed", "cluster", cluster=other).values()) == ["no call of a webhook failed"]
    operator_beside.kill()
    assert list(sections("failed", "cluster", cluster=sandbox_of_test).values()) == [FAILED_OPEN]


@pytest.mark.usefixtures("operator_beside")
@pytest.mark.parametrize(("outcome", "marker"), [("passed", "cluster"), ("failed", None)])
def test_nothing_is_added_to_other_reports(
    sandbox_of_test: Sandbox, outcome: Literal["passed", "failed"], marker: str | None
) -> None:
    assert sections(outcome, marker, sandbox=sandbox_of_test) == {}


def test_a_control_plane_without_a_log_is_no_trouble(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxFolder(tmp_path / "gone"), cast("SandboxRecord", None), None)
    (text,) = sections("failed", "cluster", sandbox=sandbox).values()
    assert text.startswith("unreadable: ")


def test_pytest_asks_for_it(request: pytest.FixtureRequest) -> None:
    asked = [one.function for one in request.node.ihook.pytest_runtest_makereport.get_hookimpls()]
    assert pytest_runtest_makereport in asked
