"""An operator is ready soon after its start and stays so, whatever an earlier one has left behind."""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from berth_core.names import DEFAULT_NAMESPACE, WEBHOOK_SECRET
from berth_kube.resources import SECRETS
from berth_sandbox.sandbox import Sandbox
from reservation_stage import delete_if_there
from service_processes import OperatorProcess, running_operator

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

SHORT_SECONDS = 6.0


def readiness(operator: OperatorProcess) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{operator.health_port}/readyz", timeout=20) as answer:
            told: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as refusal:
        told = json.load(refusal)
    return told


def test_an_operator_stays_ready_when_the_certificate_that_it_found_has_ended(sandbox: Sandbox, tmp_path: Path) -> None:
    with sandbox.connect() as client:
        delete_if_there(client, SECRETS, WEBHOOK_SECRET, DEFAULT_NAMESPACE)
    with running_operator(sandbox, tmp_path, f"--certificate-life={SHORT_SECONDS:g}s"):
        pass
    with running_operator(sandbox, tmp_path, "--sweep-seconds=60") as operator:
        deadline = time.monotonic() + SHORT_SECONDS + 1
        while time.monotonic() < deadline:
            told = readiness(operator)
            assert told["waitsFor"] == []
            assert told["ready"]
            time.sleep(0.1)
