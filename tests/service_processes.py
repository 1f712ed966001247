"""Owns the two services as processes of a test: started on a sandbox under their own accounts, stopped by their id.

It does not own the sandbox.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth_sandbox.sandbox import Sandbox

_START_SECONDS = 30.0
_STOP_SECONDS = 20.0


class ServiceProcess:
    """A service that can be killed and started again; its log goes to one file."""

    def __init__(self, command: list[str], log: Path, health_port: int) -> None:
        self.command = command
        self.log = log
        self.health_port = health_port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, leading: bool = True) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, env=_environment())
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready(leading=leading):
            if self._process.poll() is not None:
                pytest_fail(f"{self.command[0]} ended with {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                pytest_fail(f"{self.command[0]} was not ready within {_START_SECONDS:g} s:\n{self.tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)

    def _is_ready(self, *, leading: bool) -> bool:
        url = f"http://127.0.0.1:{self.health_port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                return not leading or b'"leading": true' in answer.read()
        except OSError:
            return False


def _environment() -> dict[str, str]:
    """Return this process's environment without what points clients at other clusters or proxies."""
    dropped = {"KUBECONFIG", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}
    return {key: value for key, value in os.environ.items() if key not in dropped}


def pytest_fail(message: str) -> None:
    raise AssertionError(message)


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def script(name: str) -> str:
    """Return the path of one of the project's programs beside the running Python."""
    return str(Path(sys.executable).with_name(name))


def operator_process(sandbox: Sandbox, folder: Path, *options: str) -> ServiceProcess:
    """Return an operator that is not started yet, under its own service account."""
    port = free_port()
    command = [
        script("berth-operator"),
        "--kubeconfig",
        str(sandbox.service_account_kubeconfig("berth-operator")),
        "--webhook-port",
        "0",
        "--health-address",
        f"127.0.0.1:{port}",
        "--lease-seconds",
        "3",
        *options,
    ]
    return ServiceProcess(command, folder / f"operator-{port}.log", port)


@contextmanager
def running_operator(sandbox: Sandbox, folder: Path, *options: str) -> Iterator[ServiceProcess]:
    """Yield a started operator and stop it at the end; its log is shown when the test fails."""
    process = operator_process(sandbox, folder, *options)
    process.start()
    try:
        yield process
    except BaseException:
        print(process.tail(200))  # noqa: T201 - pytest shows it with the failure
        raise
    finally:
        process.stop()
