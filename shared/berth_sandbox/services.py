"""Berth's services as processes beside a sandbox."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from berth_sandbox.errors import ServiceError
from berth_sandbox.ports import LOOPBACK

_READY_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_ANSWER_SECONDS: Final = 20.0
_TAIL_LINES: Final = 15

_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Ignores the environment's proxies for requests to this machine."""


class ServiceProcess:
    """A service with its log file; as a context manager it starts and stops."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = tuple(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, which must not be running."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_service_environment()
            )

    def stop(self) -> None:
        """Terminate the process, and kill it after a timeout."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Return the process id; raises `ServiceError` if the service was never started."""
        if self._process is None:
            raise ServiceError(f"{self._name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll() if self._process else None

    def require_running(self) -> None:
        """Raise `ServiceError` if the service has ended."""
        if self.exit_code is not None:
            raise ServiceError(f"{self._name} ended with exit code {self.exit_code}; its log ends so:\n{self.tail()}")

    def wait_until_leading(self, health_port: int) -> None:
        """Wait until the service's health port reports that it leads; raises `ServiceError`."""
        deadline = time.monotonic() + _READY_SECONDS
        while not (readiness := _read_readiness(health_port)).is_leading:
            self.require_running()
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{self._name} was not ready within {_READY_SECONDS:g} s; /readyz says: {readiness.body}; "
                    f"its log ends so:\n{self.tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the service's log."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def log_size(self) -> int:
        """Return how many bytes the service has logged."""
        return self._log.stat().st_size

    @property
    def _name(self) -> str:
        return self._log.stem


@dataclass(frozen=True, slots=True)
class _Readiness:
    """The answer of a service's health port; `body` says what is missing."""

    is_leading: bool
    body: str


def _read_readiness(health_port: int) -> _Readiness:
    try:
        with _DIRECT.open(f"http://{LOOPBACK}:{health_port}/readyz", timeout=_ANSWER_SECONDS) as answer:
            body = answer.read().decode()
            return _Readiness('"leading": true' in body, body)
    except urllib.error.HTTPError as refusal:
        return _Readiness(is_leading=False, body=refusal.read().decode(errors="replace"))
    except OSError as error:
        return _Readiness(is_leading=False, body=f"nothing ({error})")


def _service_environment() -> dict[str, str]:
    """Return the environment without variables for other clusters, proxies and options."""
    unwanted = ("KUBECONFIG", "BERTH_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(unwanted)}
