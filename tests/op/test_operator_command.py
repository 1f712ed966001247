"""The command line says in one line what is wrong, and ends with an exit code that tells whose turn it is."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from berth_operator.cli import main, request_seconds
from berth_operator.settings import WebhookSettings
from berth_operator.telemetry import START_WAITS
from berth_sandbox.ports import free_port
from service_processes import script

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": "not-a-secret"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "a health address without a port": (("--health-address", "localhost"), "--health-address is 'localhost'"),
    "a health address with a word for a port": (("--health-address", "localhost:http"), "expected HOST:PORT"),
    "a webhook address without TLS": (
        ("--webhook-url", "http://berth"),
        "expected an address that begins with https://",
    ),
    "a webhook address without a host": (("--webhook-url", "https://"), "and names a host"),
    "a webhook address with half a bracket": (("--webhook-url", "https://[::1"), "--webhook-url is 'https://[::1'"),
    "a life that is no duration": (
        ("--certificate-life", "a year"),
        "--certificate-life is 'a year'; expected a duration",
    ),
    "a port that is none": (("--webhook-port", "70000"), "70000"),
    "no worker": (("--workers", "0"), "workers is '0'; expected a number above 0"),
    "a negative retention": (("--retention", "-1"), "expected 0 or more seconds"),
    "a lease that is a word": (("--lease-seconds", "long"), "'long' is not a valid integer"),
    "a level that nobody knows": (("--log-level", "loud"), "'loud' is not one of"),
    "a kubeconfig that does not exist": (("--kubeconfig", "/nowhere/config"), "kubeconfig is '/nowhere/config'"),
    "an option that does not exist": (("--fast",), "No such option"),
}


@pytest.mark.parametrize(("arguments", "want"), BAD.values(), ids=BAD.keys())
def test_a_bad_option_is_told_in_one_line(arguments: tuple[str, ...], want: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert want in line
    assert "Traceback" not in result.stderr


def test_a_context_that_does_not_exist_is_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    result = run("--kubeconfig", str(path), "--context", "other")
    assert result.exit_code == 2
    assert "'other'" in result.stderr


def test_every_option_is_an_environment_variable_too() -> None:
    result = run(BERTH_OPERATOR_WORKERS="0")
    assert result.exit_code == 2
    assert "workers is '0'" in result.stderr


def kubeconfig(folder: Path, server: str = "https://127.0.0.1:1") -> Path:
    body = json.loads(json.dumps(KUBECONFIG))
    body["clusters"][0]["cluster"]["server"] = server
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(body))
    return path


def test_an_operator_that_cannot_reach_the_api_server_waits_until_it_is_stopped(tmp_path: Path) -> None:
    options = ("--webhook-port", "0", "--health-address", f"127.0.0.1:{free_port()}")
    command = [script("berth-operator"), "--kubeconfig", str(kubeconfig(tmp_path)), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as operator:
        assert operator.stderr is not None
        log = next(line for line in operator.stderr if START_WAITS in line)
        operator.terminate()
        log += operator.stderr.read()
    assert operator.returncode == 0
    assert "cannot reach the API server at https://127.0.0.1:1" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("webhook_seconds", [1, 5, 9, 30])
def test_a_probe_hears_that_the_api_server_gave_the_webhook_up(webhook_seconds: int) -> None:
    assert request_seconds(WebhookSettings(timeout_seconds=webhook_seconds)) >= max(10, webhook_seconds + 5)
