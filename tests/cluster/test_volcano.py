"""Berth on Volcano's own scheduler and controllers, beside the stock scheduler."""

from collections.abc import Iterator

import pytest

from berth_core.objects import Pod
from berth_kube.client import KubeClient
from berth_kube.resources import PODS
from berth_sandbox.components import VOLCANO_SCHEDULER_NAME
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_fixtures import refuse_other_contexts
from cluster_objects import make_namespace, pod_template
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

GROUP = "scheduling.k8s.io/group-name"


@pytest.fixture(scope="module")
def volcano_sandbox() -> Iterator[Sandbox]:
    """Yield a control plane without nodes, with Volcano."""
    with Sandbox.start(SandboxSettings(volcano=True), progress=print) as started:
        refuse_other_contexts(started.context)
        yield started


@pytest.fixture(scope="module")
def admin(volcano_sandbox: Sandbox) -> Iterator[KubeClient]:
    with volcano_sandbox.connect() as client:
        yield client


def test_volcano_places_the_pods_that_name_it(volcano_sandbox: Sandbox, admin: KubeClient) -> None:
    assert volcano_sandbox.read_health().complete
    (node,) = volcano_sandbox.add_nodes(1, prefix="plain-")
    namespace = make_namespace(admin, "plain")
    for name, scheduler in (("of-volcano", VOLCANO_SCHEDULER_NAME), ("of-neither", "no-such-scheduler")):
        template = pod_template({}, cpu="1", schedulerName=scheduler, nodeSelector={"kubernetes.io/hostname": node})
        body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": name}}
        admin.create(PODS, body, namespace=namespace)
    read = lambda name: admin.get(PODS, name, namespace=namespace, type=Pod)  # noqa: E731
    eventually("Volcano's pod runs", lambda: read("of-volcano").status.phase == "Running", seconds=120)
    assert GROUP in read("of-volcano").metadata.annotations
    assert not read("of-neither").spec.node_name
