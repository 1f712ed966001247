"""A template gives its placeholder a place and nothing else, whatever it asks for."""

from typing import Any

import msgspec

from berth_core import PodTemplate, PriorityClass
from berth_core.names import priority_class_name
from berth_core.reservations import Reservation, ReservationTask
from berth_operator.reservation import manifests
from berth_operator.reservation.fitting import may_own
from berth_operator.settings import PlaceholderSettings
from builders import label_owner, pod
from handover_builders import place

GREEDY: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"example.com/inject": "true"}},
    "spec": {
        "hostNetwork": True,
        "hostPID": True,
        "hostIPC": True,
        "hostUsers": True,
        "serviceAccountName": "cluster-admin",
        "automountServiceAccountToken": True,
        "nodeName": "node-a",
        "priority": 2_000_001_000,
        "preemptionPolicy": "PreemptLowerPriority",
        "runtimeClassName": "privileged",
        "imagePullSecrets": [{"name": "secret"}],
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["api"]}],
        "securityContext": {"runAsUser": 0, "sysctls": [{"name": "kernel.msgmax", "value": "1"}]},
        "volumes": [
            {"name": "root", "hostPath": {"path": "/"}},
            {"name": "secret", "secret": {"secretName": "webhook"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "containers": [
            {
                "name": "main",
                "image": "evil",
                "command": ["sh"],
                "args": ["-c", "true"],
                "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "webhook", "key": "tls.key"}}}],
                "envFrom": [{"secretRef": {"name": "webhook"}}],
                "ports": [{"containerPort": 80, "hostPort": 80}],
                "volumeMounts": [{"name": "root", "mountPath": "/host"}],
                "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
                "lifecycle": {"postStart": {"exec": {"command": ["sh"]}}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80, "host": "metadata.internal"}},
                "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
            }
        ],
        "initContainers": [{"name": "first", "image": "evil", "restartPolicy": "Always"}],
    },
}


def placeholder_of(template: dict[str, Any]) -> dict[str, Any]:
    task = ReservationTask(name="web", template=msgspec.convert(template, PodTemplate))
    reservation = place(tasks=[task])
    return manifests.build_placeholder(
        reservation, task, 0, priority=0, deadline_seconds=60, settings=PlaceholderSettings(image="pause")
    )


def test_nothing_of_a_template_but_what_scheduling_sees_reaches_the_placeholder() -> None:
    spec = placeholder_of(GREEDY)["spec"]
    assert spec == {
        "activeDeadlineSeconds": 60,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"},
                                {"key": "node-role.kubernetes.io/master", "operator": "DoesNotExist"},
                            ]
                        }
                    ]
                }
            }
        },
        "automountServiceAccountToken": False,
        "containers": [
            {
                "image": "pause",
                "imagePullPolicy": "IfNotPresent",
                "name": "placeholder",
                "resources": {"limits": {"cpu": "1", "memory": "0"}, "requests": {"cpu": "1", "memory": "0"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        "enableServiceLinks": False,
        "preemptionPolicy": "Never",
        "priority": 0,
        "priorityClassName": priority_class_name(0),
        "schedulerName": "default-scheduler",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 1,
        "tolerations": [],
    }


def test_a_placeholder_lives_in_our_own_namespace_and_carries_none_of_the_templates_labels() -> None:
    metadata = placeholder_of(GREEDY)["metadata"]
    assert metadata["namespace"] == PlaceholderSettings().namespace
    assert "app" not in metadata["labels"]
    assert "example.com/inject" not in metadata["annotations"]


def test_no_placeholder_preempts_or_stands_above_what_a_user_may_have() -> None:
    body = manifests.build_priority_class(manifests.placeholder_priority(2_000_001_000))
    assert (body["value"], body["preemptionPolicy"], body["globalDefault"]) == (1_000_000_000, "Never", False)
    assert msgspec.convert(body, PriorityClass).preemption_policy == "Never"


def test_a_trial_pod_uses_no_account_class_node_or_secret_of_the_template() -> None:
    body = manifests.build_validation_pod("uid", "web", GREEDY, PlaceholderSettings())
    foreign = {
        "serviceAccountName",
        "serviceAccount",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
        "nodeName",
        "imagePullSecrets",
        "resourceClaims",
    }
    assert not foreign & body["spec"].keys()
    assert body["spec"]["automountServiceAccountToken"] is False


def test_a_pod_of_another_namespace_owns_nothing() -> None:
    reservation: Reservation = place(owners=[label_owner(app="web")])
    labels = {"app": "web"}
    assert may_own(reservation, pod(labels=labels))
    assert not may_own(reservation, pod(labels=labels, namespace="other"))
