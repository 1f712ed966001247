"""helm takes over what a sandbox has of Berth: a chart can be tried there as it is."""

from collections.abc import Iterator

import pytest

from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient
from berth_kube.resources import CLUSTER_ROLES, DEPLOYMENTS, NAMESPACES, SERVICE_ACCOUNTS
from berth_sandbox.bootstrap import BERTH_ACCOUNTS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from chart.charted import RELEASE, Helm
from cluster_objects import is_gone
from control_planes import control_plane
from conventions.generate_copies import CHART

pytestmark = pytest.mark.cluster


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with control_plane(SandboxSettings(nodes=1)) as started:
        yield started


def ready(client: KubeClient) -> dict[str, int]:
    found = client.list(DEPLOYMENTS, namespace=DEFAULT_NAMESPACE).items
    return {one["metadata"]["name"]: one["status"].get("readyReplicas", 0) for one in found}


def test_helm_installs_upgrades_and_removes_a_release_on_a_sandbox(helm: Helm, sandbox: Sandbox) -> None:
    where = ("--kubeconfig", str(sandbox.kubeconfig), "--namespace", DEFAULT_NAMESPACE)
    waits = ("--wait", "--timeout", "120s")
    with sandbox.connect() as client:
        helm.run("install", RELEASE, str(CHART), *where, *waits, "--create-namespace")
        assert ready(client) == {"berth-operator": 2, "berth-descheduler": 2}

        helm.run("upgrade", RELEASE, str(CHART), *where, *waits, "--set", "operator.replicas=3")
        assert ready(client) == {"berth-operator": 3, "berth-descheduler": 2}

        helm.run("uninstall", RELEASE, *where, *waits)
        for account in BERTH_ACCOUNTS:
            assert is_gone(client, SERVICE_ACCOUNTS, account, DEFAULT_NAMESPACE)
            assert is_gone(client, CLUSTER_ROLES, account)
        assert not is_gone(client, NAMESPACES, DEFAULT_NAMESPACE)
