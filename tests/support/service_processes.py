"""The two services as a test runs them: the installed programs, under their own accounts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster_reports import note_operator


class OperatorProcess(ServiceProcess):
    """An operator that is ready once it is started."""

    def __init__(self, sandbox: Sandbox, folder: Path, *options: str) -> None:
        self.health_port = free_port()
        command = [
            script("berth-operator"),
            f"--kubeconfig={sandbox.service_account_kubeconfig('berth-operator')}",
            "--webhook-port=0",
            f"--health-address=127.0.0.1:{self.health_port}",
            "--drain-seconds=0.2",
            "--limit=slots=none,share=none",
            "--cluster-limit=share=none",
            *options,
        ]
        super().__init__(command, folder / f"berth-operator-{self.health_port}.log")
        note_operator(self, sandbox)

    def start(self) -> None:
        super().start()
        try:
            self.wait_until_leading(self.health_port)
        except BaseException:
            self.stop()
            raise


class BriskOperator(OperatorProcess):
    """An operator whose hand-overs have little time, or that lists often what it does not watch."""

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        *options: str,
        handover_seconds: float | None = None,
        list_seconds: float | None = None,
    ) -> None:
        super().__init__(sandbox, folder, *options)
        program = Path(__file__).with_name("brisk_operator.py")
        given = {"HANDOVER_SECONDS": handover_seconds, "LIST_SECONDS": list_seconds}
        settings = (f"{name}={seconds}" for name, seconds in given.items() if seconds is not None)
        self._command = ("env", *settings, sys.executable, str(program), *self._command[1:])


def script(name: str) -> str:
    """Return the path of one of the project's programs beside the running Python."""
    return str(Path(sys.executable).with_name(name))


@contextmanager
def running_operator(
    sandbox: Sandbox, folder: Path, *options: str, list_seconds: float | None = None
) -> Iterator[OperatorProcess]:
    """Yield a started operator and stop it at the end; its log is shown when the test fails."""
    made = OperatorProcess(sandbox, folder, *options)
    if list_seconds is not None:
        made = BriskOperator(sandbox, folder, *options, list_seconds=list_seconds)
    with made as process:
        try:
            yield process
        except BaseException:
            print(process.tail(200))  # noqa: T201 - pytest shows it with the failure
            raise
