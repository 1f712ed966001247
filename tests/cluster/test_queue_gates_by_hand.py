"""What the chart's page says of uninstalling Berth with queues: how to delete these, and to free pods they held."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from berth_core import QUEUE_API_VERSION, QUEUE_GATE, QUEUE_KIND, Pod
from berth_kube.resources import NAMESPACES, PODS, QUEUES
from berth_sandbox.binaries import find_kubectl
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_namespace, pod_template
from reservation_stage import delete_all, delete_if_there

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

PAGE: Final = Path(__file__).parents[2] / "helm" / "berth" / "README.md"
NAMESPACE: Final = "uninstalled"
OTHER: Final = "example.com/other"


GATES: Final[dict[str, list[str]]] = {"queued": [QUEUE_GATE], "both": [OTHER, QUEUE_GATE], "other": [OTHER], "free": []}


def run(sandbox: Sandbox, home: Path, commands: str) -> None:
    """Run commands in a shell; kubectl keeps its cache in the home folder."""
    kubectl = find_kubectl(print)
    path = f"{kubectl.parent}:{os.environ['PATH']}"
    environment = {"KUBECONFIG": str(sandbox.kubeconfig), "PATH": path, "HOME": str(home)}
    shell = ["/bin/bash", "-euo", "pipefail", "-c", commands]
    subprocess.run(shell, env=environment, check=True, timeout=300)


def test_the_commands_of_the_page_take_the_gate_off_all_pods_and_no_other_gate(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    block = re.search(r"^    (gate=.*?    done)$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None
    with sandbox.connect() as client:
        make_namespace(client, NAMESPACE)
        try:
            for name, gates in GATES.items():
                body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="1")}
                body["metadata"]["name"] = name
                body["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
                client.create(PODS, body, namespace=NAMESPACE)

            run(sandbox, tmp_path, block[1])

            pods = client.list(PODS, namespace=NAMESPACE, type=Pod).items
            left = {pod.metadata.name: [gate.name for gate in pod.spec.scheduling_gates] for pod in pods}
        finally:
            delete_all(client, PODS, NAMESPACE)
            delete_if_there(client, NAMESPACES, NAMESPACE)
    assert left == {name: [gate for gate in gates if gate != QUEUE_GATE] for name, gates in GATES.items()}


def test_the_page_says_how_to_delete_all_queues(sandbox: Sandbox, tmp_path: Path) -> None:
    line = re.search(r"^ +(kubectl delete queues\S* .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    with sandbox.connect() as client:
        head = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": "last"}}
        client.create(QUEUES, {**head, "spec": {}})

        run(sandbox, tmp_path, line[1])

        assert is_gone(client, QUEUES, "last")
