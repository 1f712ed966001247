"""The revision from which a StatefulSet makes the pods below its partition is read from a real API server."""

import pytest

from berth_descheduler.planner.owners import Owners
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import connect
from berth_kube.resources import NODES, PODS, STATEFUL_SETS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace, pod_template
from waiting import eventually

pytestmark = pytest.mark.cluster


def test_the_descheduler_reads_what_the_current_revision_keeps(sandbox: Sandbox) -> None:
    account = str(sandbox.service_account_kubeconfig("berth-descheduler"))
    with sandbox.connect() as client, connect(kubeconfig=account) as descheduler:
        namespace = make_namespace(client, "kept-revisions")
        (node,) = sandbox.add_nodes(
            1, NodeShape(cpu="8", memory="32Gi", labels={"stage": namespace}), prefix=f"{namespace}-"
        )
        labels, selector = {"app": "db"}, {"stage": namespace}
        spec = {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": pod_template(labels, cpu="1", nodeSelector=selector),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        }
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
        client.create(STATEFUL_SETS, body, namespace=namespace)

        def status() -> dict[str, object]:
            status: dict[str, object] = client.get(STATEFUL_SETS, "db", namespace=namespace)["status"]
            return status

        eventually("both run", lambda: status().get("readyReplicas") == 2, seconds=60)
        larger = {"spec": {"template": pod_template(labels, cpu="3", nodeSelector=selector)}}
        client.merge_patch(STATEFUL_SETS, "db", larger, namespace=namespace)
        eventually(
            "db-1 is made anew",
            lambda: status().get("updatedReplicas") == 1 and status().get("readyReplicas") == 2,
            seconds=120,
        )

        snapshot = read_live_snapshot(descheduler)
        (revision,) = [kept for kept in snapshot.controller_revisions if kept.metadata.namespace == namespace]
        assert revision.metadata.name == status()["currentRevision"]
        assert revision.template is not None
        assert revision.template.spec.containers[0].resources.requests["cpu"] == "1"
        owners = Owners(snapshot)
        pods = {pod.metadata.name: pod for pod in snapshot.pods if pod.metadata.namespace == namespace}
        assert [owners.refusals(pods[name]) for name in ("db-0", "db-1")] == [(), ()]
        # A partition that is raised later has db-1 made from the revision before, which asks for less.
        raised = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}
        client.merge_patch(STATEFUL_SETS, "db", raised, namespace=namespace)
        snapshot = read_live_snapshot(descheduler)
        assert Owners(snapshot).refusals(pods["db-1"]) == ()
        client.delete(STATEFUL_SETS, "db", namespace=namespace, propagation="Foreground")
        eventually("its pods are gone", lambda: not client.list(PODS, namespace=namespace).items, seconds=60)
        client.delete(NODES, node)
