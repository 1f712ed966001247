"""Installed by helm and started as its Deployments say, Berth moves a pod; uninstalled, it leaves nothing."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import Node, Pod
from berth_core.labels import RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_core.migration_plans import MoveState
from berth_core.names import DEFAULT_NAMESPACE, WEBHOOK_SECRET
from berth_kube.client import KubeClient
from berth_kube.resources import (
    CRDS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATIONS,
    SECRETS,
)
from berth_kube.surge import Note, build_release
from berth_kube.surge_eligibility import look_around
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from chart.charted import OWN_LABEL, Helm, existing, is_hook, shown
from chart.conftest import OWN_CRDS, remove_own_kinds
from chart.released import (
    ISSUED_SECRET,
    Release,
    installed,
    local_values,
    make_certificate,
    play_the_test_pod,
    read_page,
    running_services,
)
from chart.value_sets import EVERYTHING
from cluster_objects import build_deployment, is_gone, make_namespace, pod_template, pods
from monitoring_expressions import EXPRESSIONS, SELECTOR
from reservation_stage import delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

STAGE: Final = {"stage": "chart"}
RELEASED: Final = f"{TEMPLATE_HASH_LABEL}={RELEASED_HASH}"
OF_BERTH: Final = re.compile(r"[ /.]berth\b|volcano")


def spread_two_pods(sandbox: Sandbox, client: KubeClient) -> str:
    """Make two nodes with a pod each, which had no room for another at first, and return the pods' namespace."""
    namespace = make_namespace(client, "to-move")
    for node in sandbox.add_nodes(2, NodeShape(cpu="4", memory="16Gi", labels=STAGE), prefix="chart-"):
        filler = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": "filler"}, cpu="2500m", nodeName=node)}
        filler["metadata"]["name"] = f"filler-{node}"
        client.create(PODS, filler, namespace=namespace)
    client.create(DEPLOYMENTS, build_deployment("app", replicas=2, cpu="1", nodeSelector=STAGE), namespace=namespace)
    eventually("both run", lambda: len(running(client, namespace)) == 2, seconds=60)
    assert len({pod.spec.node_name for pod in running(client, namespace)}) == 2
    for filler in client.list(PODS, namespace=namespace, label_selector="app=filler").items:
        client.delete(PODS, filler["metadata"]["name"], namespace=namespace, grace_seconds=0)
    eventually("the fillers are gone", lambda: not pods(client, namespace, app="filler"), seconds=30)
    return namespace


def running(client: KubeClient, namespace: str) -> list[Pod]:
    found = pods(client, namespace, app="app")
    return [pod for pod in found if pod.status.phase == "Running" and not pod.is_terminating]


def delete_all_live(client: KubeClient) -> None:
    """Take the first steps of an uninstallation, as the chart's page has them."""
    for policy in client.list(DESCHEDULER_POLICIES).items:
        delete_if_there(client, DESCHEDULER_POLICIES, policy["metadata"]["name"])
    for plan in client.list(MIGRATION_PLANS).items:
        delete_if_there(client, MIGRATION_PLANS, plan["metadata"]["name"])
    for reservation in client.list(RESERVATIONS).items:
        metadata = reservation["metadata"]
        delete_if_there(client, RESERVATIONS, metadata["name"], metadata["namespace"])
    eventually("no pod is let go", lambda: not client.list(PODS, label_selector=RELEASED).items, seconds=90)
    eventually("the webhook is gone", lambda: not client.list(MUTATING_WEBHOOKS).items, seconds=90)


def delete_classes(client: KubeClient) -> None:
    """Take the step after `helm uninstall`: classes stay between uses."""
    managed = "app.kubernetes.io/managed-by=berth-operator"
    for priority_class in client.list(PRIORITY_CLASSES, label_selector=managed).items:
        client.delete(PRIORITY_CLASSES, priority_class["metadata"]["name"])


def test_the_services_of_a_release_move_a_pod_and_the_documented_steps_leave_nothing(
    helm: Helm, bare_sandbox: Sandbox, client: KubeClient, tmp_path: Path
) -> None:
    before = existing(client)
    values = local_values()
    with installed(helm, bare_sandbox, client, values) as release:
        make_certificate(bare_sandbox, client)
        namespace = spread_two_pods(bare_sandbox, client)
        with running_services(bare_sandbox, client, tmp_path) as services:
            health = values["descheduler"]["healthPort"]
            has_ended = lambda: "berth_cycles_total{" in read_page(health, "/metrics")  # noqa: E731
            eventually("a cycle has ended", has_ended, seconds=180)
            metrics = {name: read_page(values[name]["healthPort"], "/metrics") for name in services}
            (plan,) = client.list(MIGRATION_PLANS).items
            by_helm, by_the_doctor = play_the_test_pod(release, client, tmp_path)
            assert certificate_in(client, WEBHOOK_SECRET) == certificate_in(client, ISSUED_SECRET)
            let_go(client, namespace, plan["metadata"]["name"])
            delete_all_live(client)
            eventually("freed nodes carry no mark", lambda: not marked_nodes(client), seconds=90)
        logs = "\n".join(process.tail() for process in services.values())
        assert [move["state"] for move in plan["status"]["moves"]] == [MoveState.LANDED], logs
        assert len({pod.spec.node_name for pod in running(client, namespace)}) == 1
        assert all(pod.controller for pod in running(client, namespace))
        assert {name: process.exit_code for name, process in services.items()} == {"operator": 0, "descheduler": 0}
        assert "Phase:          Succeeded" in by_helm, by_the_doctor
        release.uninstall()
        assert not {name for name in existing(client) if "Role" in name and "berth-test" in name}
    clear_stage(client, namespace)
    delete_classes(client)
    remove_own_kinds(client)
    eventually("nothing of Berth is left", lambda: not of_berth(existing(client) - before), seconds=90)
    asked = {series for text in EXPRESSIONS.values() for series, _ in SELECTOR.findall(text)}
    assert not asked - measured("\n".join(metrics.values()))


def let_go(client: KubeClient, namespace: str, plan: str) -> None:
    """Leave a pod out of its ReplicaSet, as a run of that plan does that is killed in the middle."""
    raw_pod = client.list(PODS, namespace=namespace, label_selector="app=app").items[0]
    note = Note(plan=plan, source=raw_pod["spec"]["nodeName"])
    body = build_release(raw_pod, look_around(client, raw_pod), note)
    client.merge_patch(PODS, raw_pod["metadata"]["name"], body, namespace=namespace)


def certificate_in(client: KubeClient, secret: str) -> str:
    found: str = client.get(SECRETS, secret, namespace=DEFAULT_NAMESPACE)["data"]["tls.crt"]
    return found


def marked_nodes(client: KubeClient) -> list[str]:
    nodes = client.list(NODES, type=Node).items
    return [node.metadata.name for node in nodes if any(taint.key.startswith("berth") for taint in node.spec.taints)]


def measured(page: str) -> set[str]:
    """Return the series of a page of metrics, also those that have nothing to count yet."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE):
        found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return found


def of_berth(objects: set[str]) -> set[str]:
    return {name for name in objects if OF_BERTH.search(name)}


def clear_stage(client: KubeClient, namespace: str) -> None:
    client.delete(NAMESPACES, namespace)
    eventually("the stage is empty", lambda: is_gone(client, NAMESPACES, namespace), seconds=180)
    for node in client.list(NODES, label_selector="stage=chart").items:
        client.delete(NODES, node["metadata"]["name"])


def test_an_upgrade_makes_what_was_asked_for_and_removes_what_was_not(
    helm: Helm, bare_sandbox: Sandbox, client: KubeClient
) -> None:
    steps: dict[str, dict[str, Any]] = {
        "everything": EVERYTHING,
        "little": {
            "operator": {"replicas": 1},
            "descheduler": {"enabled": False},
            "networkPolicy": {"enabled": False},
        },
        "the defaults": {},
    }
    with installed(helm, bare_sandbox, client, {}) as release:
        for name, values in steps.items():
            release.upgrade(values)
            wanted = {
                shown(manifest)
                for manifest in helm.render(values, namespace=DEFAULT_NAMESPACE)
                if not is_hook(manifest)
            }
            assert made_by_helm(client) == wanted, name
        upgrade_the_kinds(release, client)
        release.uninstall()
        assert made_by_helm(client) == set()
        assert not any(is_gone(client, CRDS, name) for name in OWN_CRDS)


def upgrade_the_kinds(release: Release, client: KubeClient) -> None:
    """Do to CRDs of an older chart what the chart's page says, and find them as this chart has them."""
    for name in OWN_CRDS:
        older = client.get(CRDS, name)["spec"]["versions"]
        for version in older:
            fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            fields["ofAnOlderVersion"] = {"type": "string"}
            version["additionalPrinterColumns"] = []
        client.merge_patch(CRDS, name, {"spec": {"versions": older}})
    bodies = release.apply_kinds(client)
    for name, body in bodies.items():
        (version,), (wanted,) = client.get(CRDS, name)["spec"]["versions"], body["spec"]["versions"]
        assert version["additionalPrinterColumns"] == wanted["additionalPrinterColumns"]
        assert "ofAnOlderVersion" not in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def made_by_helm(client: KubeClient) -> set[str]:
    """Return what helm labelled, without what the controllers of the control plane derive from it."""
    derived = ("EndpointSlice ", "Endpoints ", "Pod ", "ReplicaSet ", "PodMetrics ")
    return {name for name in existing(client, OWN_LABEL) if not name.startswith(derived)}
