"""`berth drain` of a node with eight ordinary workloads, most of which would not come back to a place held for them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import Pod
from berth_core.migration_plans import MoveState
from berth_kube.resources import DEPLOYMENTS, JOBS, PODS, PVCS, PVS, REPLICA_SETS, STATEFUL_SETS, Resource
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_namespace, pod_template
from descheduling_stage import AT_ONCE, Scene, scene_name, set_pace, set_up
from service_processes import OperatorProcess
from waiting import eventually

pytestmark = [pytest.mark.cluster]

SMALL: Final = "100m"
BIGGER: Final = "2"
REFUSED: Final = {
    "edited": "TemplateDiffers",
    "replaced": "TemplateDiffers",
    "ordered": "LowerOrdinalNotReady",
    "workers": "NoReplacement",
    "shared": "SharedVolume",
    "on-the-node": "LocalStorage",
    "group-0": "GangWouldRestart",
}
"""Why the pods of a workload stay."""
MOUNTED: Final = {
    "shared": {"nfs": {"server": "192.0.2.9", "path": "/data"}},
    "on-the-node": {"hostPath": {"path": "/data"}},
}
"""The workloads with a claim, and where the data of each is."""
FIRST: Final = "ordered-0"
"""It is not Ready, and waits for no pod before it; so it moves at once, as the pod of the Deployment `plain` does."""
SECOND: Final = "ordered-1"
"""It moves once the first one is Ready again."""


class Ordinary(Scene):
    """A node with pods of eight workloads, beside two nodes with room for all of them."""

    def set_up(self, **_: Any) -> None:  # noqa: ANN401 - of the scene that it stands for
        make_namespace(self.client, self.namespace)
        shape = NodeShape(cpu="8", memory="64Gi")
        self.high = self.sandbox.add_nodes(2, shape, prefix=f"{self.namespace}-high-")
        self.cordon(*self.high)
        self.low = self.sandbox.add_nodes(1, shape, prefix=f"{self.namespace}-low-")
        self._let_the_scheduler_hear()
        self.deploy("plain", replicas=1, cpu=SMALL)
        for name, source in MOUNTED.items():
            self._mount(name, source)
        self._create(DEPLOYMENTS, "shared", {"replicas": 2}, volumes=[_claim("shared")])
        self._create(STATEFUL_SETS, "on-the-node", {}, volumes=[_claim("on-the-node")])
        self._create(STATEFUL_SETS, "edited", {"updateStrategy": {"type": "OnDelete"}})
        self._create(STATEFUL_SETS, "ordered", {"replicas": 2})
        self._create(REPLICA_SETS, "replaced", {"replicas": 1})
        self._create(JOBS, "workers", {"parallelism": 2, "backoffLimit": 20}, restartPolicy="Never")
        self._create_worker_of_a_leader()
        self._await_pods({"shared": 2, "on-the-node": 1, "edited": 1, "ordered": 2, "replaced": 1, "workers": 2})
        self._await_pods({"group-0": 1})
        self._edit()
        self.cordon(*self.high, closed=False)

    def _edit(self) -> None:
        """Have two templates ask for more, a StatefulSet's first pod not Ready, and a worker of a Job at its end."""
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": BIGGER}}}
        template = {"spec": {"template": {"spec": {"containers": [container]}}}}
        self.client.merge_patch(STATEFUL_SETS, "edited", template, namespace=self.namespace)
        self.client.merge_patch(REPLICA_SETS, "replaced", template, namespace=self.namespace)
        revisions = lambda: self.client.get(STATEFUL_SETS, "edited", namespace=self.namespace)["status"]  # noqa: E731
        self.wait_for("the change is observed", lambda: revisions()["currentRevision"] != revisions()["updateRevision"])
        self._patch_status("ordered-0", {"conditions": [{"type": "Ready", "status": "False"}]})
        finished, _ = self.pods_of("workers")
        ended = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z"}
        container_status = {"name": "main", "image": "pause", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [{**container_status, "state": {"terminated": ended}}]}
        self._patch_status(finished.metadata.name, status)
        succeeded = lambda: self.client.get(JOBS, "workers", namespace=self.namespace)["status"].get("succeeded")  # noqa: E731
        self.wait_for("the Job counts it", lambda: succeeded() == 1)

    def _create(
        self,
        resource: Resource,
        name: str,
        spec: Mapping[str, Any],
        owner: Mapping[str, Any] | None = None,
        **pod: Any,  # noqa: ANN401 - fields of a pod's spec
    ) -> None:
        """Create a controller of small pods that have its name as their label `app`."""
        template = pod_template({"app": name}, cpu=SMALL, **pod)
        set_pace(template, AT_ONCE)
        selector = {} if resource == JOBS else {"selector": {"matchLabels": {"app": name}}}
        metadata = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
        body = {"metadata": metadata, "spec": {**selector, "template": template, **spec}}
        self.client.create(resource, body, namespace=self.namespace)

    def _create_worker_of_a_leader(self) -> None:
        """Create a group as a LeaderWorkerSet does: a leader, and the StatefulSet of workers that the leader owns."""
        self.create_pod("group", cpu=SMALL, nodeName=self.high[0])
        leader = self.client.get(PODS, "group", namespace=self.namespace, type=Pod)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "group", "uid": leader.metadata.uid, "controller": True}
        self._create(STATEFUL_SETS, "group-0", {"ordinals": {"start": 1}}, owner)

    def _mount(self, name: str, source: Mapping[str, Any]) -> None:
        """Create a claim for one node at a time that is bound to a volume."""
        claimed = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        volume = f"{self.namespace}-{name}"
        claim = {**claimed, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
        self.client.create(PVCS, {"metadata": {"name": name}, "spec": claim}, namespace=self.namespace)
        reference = {"namespace": self.namespace, "name": name}
        spec = {**claimed, **source, "capacity": {"storage": "1Gi"}, "claimRef": reference}
        body = {"metadata": {"name": volume}, "spec": {**spec, "persistentVolumeReclaimPolicy": "Retain"}}
        self.client.create(PVS, body)

    def _patch_status(self, pod: str, status: Mapping[str, Any]) -> None:
        self.client.merge_patch(PODS, pod, {"status": status}, namespace=self.namespace, subresource="status")

    def _await_pods(self, wanted: Mapping[str, int]) -> None:
        for app, count in wanted.items():
            self.wait_for(
                f"{app} runs", lambda app=app, count=count: sum(pod.is_ready for pod in self.pods_of(app)) == count
            )

    def pods_of(self, app: str) -> tuple[Pod, ...]:
        return self.pods(label_selector=f"app={app}")

    def uids(self) -> dict[str, str]:
        """Return the uids of the pods on the node, by their names."""
        pods = self.pods(field_selector=f"spec.nodeName={self.low[0]}")
        return {pod.metadata.name: pod.metadata.uid for pod in pods if not pod.is_terminal}

    def clear(self) -> None:
        """Take away what makes its pods anew first, and the volumes once no pod mounts them."""
        for resource in (STATEFUL_SETS, REPLICA_SETS, JOBS):
            for item in self.client.list(resource, namespace=self.namespace).items:
                name = item["metadata"]["name"]
                if not any(owner["kind"] == "Deployment" for owner in item["metadata"].get("ownerReferences", ())):
                    self.client.delete(resource, name, namespace=self.namespace, propagation="Background")
        for name in MOUNTED:
            self.client.delete(PVCS, name, namespace=self.namespace)  # its protection ends with the last pod
        super().clear()
        for name in MOUNTED:
            eventually(f"the claim {name} is gone", lambda name=name: is_gone(self.client, PVCS, name, self.namespace))
            self.client.delete(PVS, f"{self.namespace}-{name}")
            volume = f"{self.namespace}-{name}"
            eventually(f"the volume {volume} is gone", lambda volume=volume: is_gone(self.client, PVS, volume))


def _claim(name: str) -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


@pytest.fixture
def ordinary(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Ordinary]:
    assert serving_operator.exit_code is None
    with cluster.connect() as client, set_up(Ordinary(cluster, client, tmp_path, scene_name(request))) as scene:
        yield scene


def test_a_drain_moves_what_comes_back_and_names_what_would_not(ordinary: Ordinary) -> None:
    node, before = ordinary.low[0], ordinary.uids()
    workload_of = {pod.metadata.name: pod.metadata.labels["app"] for pod in ordinary.pods()}
    stays = {name: REFUSED[workload_of[name]] for name in before if workload_of[name] in REFUSED and name != FIRST}

    whole = ordinary.start_drain(node)

    assert whole.wait() == 1, whole.tail(100)
    assert {pod["pod"]: pod["reason"] for pod in whole.outcome["plan"]["refused"]} == stays
    assert (whole.outcome["runs"][-1]["verdict"], ordinary.plans()) == ("PodsStay", ())
    assert ordinary.uids() == before

    others = ordinary.start_drain(node, "--skip-refused")

    assert others.wait() == 1, others.tail(100)
    assert ordinary.states() == [MoveState.LANDED] * 3
    assert ordinary.uids() == {name: before[name] for name in stays if name != SECOND}
