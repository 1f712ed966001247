"""Owns the two services as the demo runs them: real processes under their own service accounts.

It does not own what they do.
"""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from berth_core.errors import PermanentError, RetryableError

_READY_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 20.0
_TAIL_LINES: Final = 15


class ServiceError(PermanentError):
    """A service ended when it should not have; the text carries the end of its log."""


class Service:
    """One service; used as a context manager it is stopped at the end of the block."""

    def __init__(self, module: str, options: Sequence[str], log: Path) -> None:
        self._command = [sys.executable, "-m", module, *options]
        self._module = module
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603 - our own modules
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll() if self._process else None

    def require_running(self) -> None:
        """Raise `ServiceError` if the service has ended."""
        if self.exit_code is not None:
            raise ServiceError(
                f"{self._module} ended with exit code {self.exit_code}; the end of its log:\n{self.tail()}"
            )

    def wait_until_listening(self, port: int) -> None:
        """Wait until the service answers on a loopback port; raise `ServiceError` or `RetryableError`."""
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            self.require_running()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if time.monotonic() > deadline:
                raise RetryableError(f"{self._module} was not ready within {_READY_SECONDS:g} s:\n{self.tail()}")
            time.sleep(0.05)

    def tail(self) -> str:
        """Return the end of the service's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
