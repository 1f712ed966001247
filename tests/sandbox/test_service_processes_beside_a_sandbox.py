"""A service beside a sandbox is started, killed and started again, and says why it is not there."""

import sys
from pathlib import Path

import pytest

from berth_sandbox.errors import ServiceError
from berth_sandbox.ports import free_port
from berth_sandbox.services import ServiceProcess
from waiting import soon

FOREVER = "import time; print('up', flush=True); time.sleep(600)"
LEADER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"leading": true}' if self.path == "/readyz" else b""
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def service(folder: Path, program: str, *arguments: str) -> ServiceProcess:
    return ServiceProcess([sys.executable, "-c", program, *arguments], folder / "berth-odd.log")


def wait_for_line(process: ServiceProcess, line: str) -> None:
    soon(f"it says {line!r}", lambda: line in process.tail())


def test_a_service_is_stopped_at_the_end_of_its_block(tmp_path: Path) -> None:
    with service(tmp_path, FOREVER) as process:
        wait_for_line(process, "up")
        assert process.exit_code is None
        process.require_running()
    assert process.exit_code == -15


def test_a_service_that_was_killed_is_started_again_and_logs_on(tmp_path: Path) -> None:
    with service(tmp_path, FOREVER) as process:
        wait_for_line(process, "up")
        process.kill()
        assert process.exit_code == -9
        process.start()
        wait_for_line(process, "up\nup")
        assert process.exit_code is None


def test_a_service_that_ended_says_so_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        service(tmp_path, "import sys; print('no such cluster'); sys.exit(2)") as process,
        pytest.raises(ServiceError, match=r"berth-odd ended with exit code 2; its log ends so:\nno such cluster"),
    ):
        process.wait_until_leading(free_port())


def test_a_service_is_ready_when_it_says_that_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    port = free_port()
    with service(tmp_path, LEADER, str(port)) as process:
        process.wait_until_leading(port)
        assert process.exit_code is None


def test_a_service_is_not_led_elsewhere_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "https_proxy", "BERTH_OPERATOR_NAMESPACE"):
        monkeypatch.setenv(name, "elsewhere")
    with service(tmp_path, "import os; print(sorted(os.environ), 'elsewhere' in os.environ.values())") as process:
        wait_for_line(process, "False")
    assert "'PATH'" in process.tail()
