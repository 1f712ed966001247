from dataclasses import dataclass

import msgspec
import pytest

from berth_core import LabelSelector, Pod, PodDisruptionBudget, Toleration
from berth_core.workloads import Workload
from builders import bare_pod, node, owner, pod

RAW_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "default",
        "uid": "u",
        "creationTimestamp": "2026-11-21T12:00:00Z",
        "labels": {"app": "web"},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "1"},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2", "controller": True},
        ],
    },
    "spec": {
        "nodeName": "node-a",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"disk": "ssd"},
        "schedulingGates": [{"name": "berth.volcano.sh/handover"}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "containers": [
            {
                "name": "app",
                "image": "app:1",
                "command": ["sleep"],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}],
            }
        ],
        "initContainers": [{"name": "init", "restartPolicy": "Always"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-0", "readOnly": True}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "config", "configMap": {"name": "config"}},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                    ]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}},
                    }
                ]
            },
        },
        "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    },
    "status": {
        "phase": "Running",
        "nominatedNodeName": "node-b",
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}],
        "containerStatuses": [{"name": "app", "ready": True, "restartCount": 3}],
    },
}


def test_a_pod_as_the_api_serves_it_is_read_field_by_field() -> None:
    read = msgspec.convert(RAW_POD, Pod)
    assert read.key == "default/web-0"
    assert read.controller is not None
    assert read.controller.name == "web"
    assert read.spec.node_name == "node-a"
    assert read.spec.node_selector == {"disk": "ssd"}
    assert read.spec.termination_grace_period_seconds == 30
    assert read.spec.tolerations == (
        Toleration(key="a", operator="Exists", effect="NoExecute", toleration_seconds=300),
    )
    assert read.is_gated
    port = read.spec.containers[0].ports[0]
    assert (port.container_port, port.host_port, port.host_ip, port.protocol) == (80, 8080, "10.0.0.1", "UDP")
    assert read.spec.init_containers[0].restart_policy == "Always"
    data, scratch, config = read.spec.volumes
    assert data.persistent_volume_claim is not None
    assert data.persistent_volume_claim.claim_name == "data-0"
    assert scratch.empty_dir == {}
    assert (config.empty_dir, config.host_path, config.persistent_volume_claim) == (None, None, None)
    assert read.spec.topology_spread_constraints[0].max_skew == 2
    assert read.spec.affinity is not None
    assert read.spec.affinity.pod_anti_affinity is not None
    preferred = read.spec.affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution
    assert preferred[0].pod_affinity_term.label_selector == LabelSelector(match_labels={"a": "b"})
    assert read.status.nominated_node_name == "node-b"
    assert read.status.container_statuses[0].restart_count == 3
    assert read.is_ready


def test_what_is_written_again_is_what_was_read() -> None:
    read = msgspec.convert(RAW_POD, Pod)
    assert msgspec.json.decode(msgspec.json.encode(read), type=Pod) == read
    assert msgspec.to_builtins(Pod()) == {}


def test_objects_do_not_change() -> None:
    with pytest.raises(AttributeError):
        pod().spec = pod().spec  # type: ignore[misc]


def test_two_objects_do_not_share_their_maps() -> None:
    first, second = msgspec.convert([{"metadata": {}}, {"metadata": {}}], tuple[Pod, Pod])
    assert first == second
    assert first.metadata.labels is not second.metadata.labels


@dataclass(frozen=True)
class Telling:
    pod: Pod
    want_terminal: bool = False
    want_terminating: bool = False
    want_mirror: bool = False
    want_daemon: bool = False
    want_gated: bool = False
    want_ready: bool = False
    want_controller: str | None = "web"


TELLING = {
    "a running pod": Telling(pod(node="node-a"), want_ready=True),
    "a pending pod": Telling(pod()),
    "a pod that has ended well": Telling(pod(phase="Succeeded"), want_terminal=True),
    "a pod that has failed": Telling(pod(phase="Failed"), want_terminal=True),
    "a pod of unknown state still holds its place": Telling(pod(phase="Unknown")),
    "a pod that is being deleted": Telling(
        pod(node="node-a", deleted="2026-11-21T12:00:00Z"), want_terminating=True, want_ready=True
    ),
    "a mirror pod": Telling(
        pod(annotations={"kubernetes.io/config.mirror": "x"}, controller=owner("Node", "node-a")),
        want_mirror=True,
        want_controller="node-a",
    ),
    "a pod of a DaemonSet": Telling(pod(controller=owner("DaemonSet", "log")), want_daemon=True, want_controller="log"),
    "a gated pod": Telling(pod(gates=["example.com/wait"]), want_gated=True),
    "a pod that nothing makes again": Telling(bare_pod(), want_controller=None),
}


@pytest.mark.parametrize("case", TELLING.values(), ids=TELLING.keys())
def test_what_a_pod_tells(case: Telling) -> None:
    controller = case.pod.controller
    assert (controller.name if controller else None) == case.want_controller
    assert case.pod.is_terminal is case.want_terminal
    assert case.pod.is_terminating is case.want_terminating
    assert case.pod.is_mirror is case.want_mirror
    assert case.pod.is_daemon is case.want_daemon
    assert case.pod.belongs_to_node is (case.want_mirror or case.want_daemon)
    assert case.pod.occupies_node is (not case.pod.belongs_to_node and not case.pod.is_terminal)
    assert case.pod.is_gated is case.want_gated
    assert case.pod.is_ready is case.want_ready


@pytest.mark.parametrize(("ready", "want"), [(True, True), (False, False), (None, False)])
def test_a_node_is_ready_only_if_it_says_so(*, ready: bool | None, want: bool) -> None:
    assert node(ready=ready).ready is want


def test_a_condition_that_is_not_set_is_empty() -> None:
    assert node().condition("DiskPressure") == ""
    assert pod().condition("PodScheduled") == ""


def test_a_budget_holds_numbers_and_percentages() -> None:
    raw = {"spec": {"minAvailable": "50%", "maxUnavailable": 1, "selector": {}}, "status": {"disruptionsAllowed": 2}}
    budget = msgspec.convert(raw, PodDisruptionBudget)
    assert (budget.spec.min_available, budget.spec.max_unavailable) == ("50%", 1)
    assert budget.spec.selector == LabelSelector()
    assert budget.status.disruptions_allowed == 2


def test_a_workload_keeps_its_kind() -> None:
    raw = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "suspend": True}}
    job = msgspec.convert(raw, Workload)
    assert (job.kind, job.api_version, job.spec.parallelism, job.spec.suspend) == ("Job", "batch/v1", 3, True)


def test_daemons_mirrors_and_ended_pods_leave_their_node_free() -> None:
    daemon = owner(kind="DaemonSet")
    occupies = {
        "running": pod(node="a"),
        "on its way out": pod(node="a", deleted="2026-11-21T12:00:00Z"),
        "ended": pod(node="a", phase="Succeeded"),
        "a daemon": pod(node="a", controller=daemon),
    }

    assert [name for name, one in occupies.items() if one.occupies_node] == ["running", "on its way out"]
