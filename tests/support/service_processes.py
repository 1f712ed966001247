"""The two services as a test runs them: the installed programs, under their own accounts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster_reports import note_operator

WEBHOOK_SECONDS: Final = 20
"""How long the API server waits for the webhook: on a busy machine longer than usual, as a pod is made only once."""


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
            f"--webhook-timeout-seconds={WEBHOOK_SECONDS}",
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
    """An operator whose hand-overs have little time, that lists often what it does not watch, or waits for answers."""

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        *options: str,
        handover_seconds: float | None = None,
        list_seconds: float | None = None,
        request_seconds: float | None = None,
    ) -> None:
        super().__init__(sandbox, folder, *options)
        program = Path(__file__).with_name("brisk_operator.py")
        given = {
            "HANDOVER_SECONDS": handover_seconds,
            "LIST_SECONDS": list_seconds,
            "REQUEST_SECONDS": request_seconds,
        }
        settings = (f"{name}={seconds}" for name, seconds in given.items() if seconds is not None)
        self._command = ("env", *settings, sys.executable, str(program), *self._command[1:])


def script(name: str) -> str:
    """Return the path of one of the project's programs beside the running Python."""
    return str(Path(sys.executable).with_name(name))


@contextmanager
def running_operator(sandbox: Sandbox, folder: Path, *options: str, **times: float | None) -> Iterator[OperatorProcess]:
    """Yield a started operator and stop it at the end; its log is shown when the test fails."""
    kind = partial(BriskOperator, **times) if times else OperatorProcess
    with kind(sandbox, folder, *options) as process:
        try:
            yield process
        except BaseException:
            print(process.tail(200))  # noqa: T201 - pytest shows it with the failure
            raise
