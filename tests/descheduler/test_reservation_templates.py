"""A template keeps what scheduling sees of a live pod, drops what was added to it, and holds no secret."""

import copy
from typing import Any

import msgspec
import pytest

from berth_core import Pod, PodTemplate
from berth_core.matching import template_differences
from berth_descheduler.migration.manifests.reservation_templates import build_template

AS_WRITTEN: dict[str, Any] = {
    "schedulerName": "default-scheduler",
    "nodeSelector": {"disk": "ssd"},
    "priorityClassName": "gold",
    "runtimeClassName": "gvisor",
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
            "matchLabelKeys": ["pod-template-hash"],
        }
    ],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "zone",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "matchLabelKeys": ["pod-template-hash"],
                }
            ],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "mismatchLabelKeys": ["tier"]}}
            ],
        }
    },
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "containers": [
        {
            "name": "app",
            "image": "app:1",
            "ports": [{"containerPort": 80, "hostPort": 8080}],
            "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
        }
    ],
    "initContainers": [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}],
}
LABELS = {"app": "web", "pod-template-hash": "abc", "tier": "front"}


def written_pod() -> dict[str, Any]:
    return {"metadata": {"name": "", "namespace": "shop", "labels": LABELS}, "spec": copy.deepcopy(AS_WRITTEN)}


def live_pod() -> dict[str, Any]:
    """The pod as the API server, its admission and an earlier hand-over have made it."""
    live = written_pod()
    metadata, spec = live["metadata"], live["spec"]
    metadata |= {"name": "web-1", "uid": "u1"}
    metadata["labels"] = {**LABELS, "berth.volcano.sh/reservation": "earlier"}
    spec |= {
        "nodeName": "node-of-source",
        "priority": 1000,
        "preemptionPolicy": "PreemptLowerPriority",
        "serviceAccountName": "web",
        "hostname": "web-1",
        "subdomain": "web",
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "kube-api-access-x7", "projected": {}}, {"name": "tls", "secret": {"secretName": "tls"}}],
    }
    spec["tolerations"] = [
        *spec["tolerations"],
        added_toleration("not-ready"),
        added_toleration("unreachable"),
        {"key": "berth.volcano.sh/handover", "operator": "Exists", "effect": "NoSchedule"},
    ]
    merged = {"key": "pod-template-hash", "operator": "In", "values": ["abc"]}
    spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] = [merged]
    terms = spec["affinity"]["podAntiAffinity"]
    terms["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"]["matchExpressions"] = [merged]
    terms["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]["labelSelector"] = {
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]
    }
    container = spec["containers"][0]
    container |= {
        "command": ["serve", "--token=hunter2"],
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        "livenessProbe": {"exec": {"command": ["hunter2"]}},
    }
    return live


def added_toleration(condition: str) -> dict[str, Any]:
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def test_what_scheduling_sees_is_kept_as_it_was_written() -> None:
    spec = build_template(live_pod())["spec"]
    preferred = AS_WRITTEN["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {key: spec[key] for key in AS_WRITTEN if key != "affinity"} == {
        key: value for key, value in AS_WRITTEN.items() if key != "affinity"
    }
    kept = spec["affinity"]["podAntiAffinity"]
    assert (
        kept["requiredDuringSchedulingIgnoredDuringExecution"]
        == (AS_WRITTEN["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"])
    )
    term = kept["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
    assert {**term, "labelSelector": {}} == {**preferred[0]["podAffinityTerm"], "labelSelector": {}}
    assert not term["labelSelector"]


def test_the_replacement_as_the_webhook_sees_it_matches_the_template() -> None:
    template = msgspec.convert(build_template(live_pod()), PodTemplate)
    replacement = written_pod()
    replacement["spec"]["tolerations"] += [added_toleration("not-ready"), added_toleration("unreachable")]
    replacement["spec"] |= {"priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}
    terms = replacement["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    terms[0]["podAffinityTerm"]["labelSelector"] = {}
    pod = msgspec.convert(replacement, Pod)
    assert template_differences(template, pod, scheduler_name="default-scheduler") == ()


@pytest.mark.parametrize(
    "dropped",
    [
        "hunter2",
        "kube-api-access",
        "secret",
        "web-1",
        "node-of-source",
        "volumeMounts",
        "serviceAccount",
        "handover",
        "earlier",
    ],
)
def test_no_secret_and_nothing_that_was_added_stays(dropped: str) -> None:
    assert dropped not in str(build_template(live_pod()))


def test_the_resolved_priority_stays_only_where_no_class_stands_for_it() -> None:
    pod = live_pod()
    assert "priority" not in build_template(pod)["spec"]
    del pod["spec"]["priorityClassName"]
    assert build_template(pod)["spec"]["priority"] == 1000


def test_a_toleration_that_only_resembles_the_added_ones_stays() -> None:
    pod = live_pod()
    own = {**added_toleration("not-ready"), "tolerationSeconds": 60}
    pod["spec"]["tolerations"] = [own]
    assert build_template(pod)["spec"]["tolerations"] == [own]


def test_the_live_pod_is_not_changed() -> None:
    pod = live_pod()
    before = copy.deepcopy(pod)
    build_template(pod)
    assert pod == before


def test_a_plain_pod_has_a_plain_template() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a", "env": []}]}}
    assert build_template(pod) == {"spec": {"containers": [{"name": "a", "image": "a"}]}}
