"""What a control plane and its operators logged, put into the report of a cluster test that failed."""

from collections.abc import Generator
from typing import Final
from weakref import WeakKeyDictionary

import pytest

from berth_sandbox.components import Component
from berth_sandbox.errors import ServiceError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess

_WEBHOOK_FAILURES: Final = ("failing open", "failed calling webhook")
_MOST_FAILURES: Final = 100
_OPERATOR_LINES: Final = 80

_operators: Final[WeakKeyDictionary[ServiceProcess, Sandbox]] = WeakKeyDictionary()


def note_operator(process: ServiceProcess, sandbox: Sandbox) -> None:
    """Have an operator's log shown when a test of its control plane fails while it runs."""
    _operators[process] = sandbox


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what was logged to the report of a cluster test that failed, so that a rare failure explains itself."""
    del call
    report = yield
    if report.failed and item.get_closest_marker("cluster") is not None:
        used = getattr(item, "funcargs", {}).values()
        for sandbox in [one for one in used if isinstance(one, Sandbox)]:
            report.sections += describe_control_plane(sandbox)
    return report


def describe_control_plane(sandbox: Sandbox) -> list[tuple[str, str]]:
    """Return titles and texts: the webhook calls that failed, then the end of each running operator's log."""
    running = [process for process, its in _operators.items() if its is sandbox and _is_running(process)]
    return [
        ("webhooks in the log of kube-apiserver", _webhook_failures(sandbox)),
        *((f"the end of {process._log.name}", process.tail(_OPERATOR_LINES)) for process in running),
    ]


def _webhook_failures(sandbox: Sandbox) -> str:
    log = SandboxFolder(sandbox.folder).log(Component.API_SERVER)
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"unreadable: {error}"
    found = [line for line in lines if any(text in line for text in _WEBHOOK_FAILURES)]
    return "\n".join(found[-_MOST_FAILURES:]) or "no call of a webhook failed"


def _is_running(process: ServiceProcess) -> bool:
    """Return whether a process was started and has not ended."""
    try:
        return process.pid > 0 and process.exit_code is None
    except ServiceError:
        return False
