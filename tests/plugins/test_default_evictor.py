"""Which pods `DefaultEvictor` keeps, beside what upstream documents for the same arguments."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core import Pod, Volume
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from builders import NOON, bare_pod, disruption_budget, namespace, node, owner, priority_class
from planner.clusters import claimed
from plugins.evictor_cases import AN_HOUR_AGO, all_reasons, reasons, running, stored

EVICT = {"descheduler.alpha.kubernetes.io/evict": "false"}
"""Its being there counts, not its value."""

STAY = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}
SCRATCH = (Volume(name="scratch", empty_dir={}),)
FILES = (Volume(name="files", host_path={"path": "/var"}),)
DATA = (claimed("data"),)
FAST_CLAIMS_STAY = {
    "podProtections": {
        "extraEnabled": ["PodsWithPVC"],
        "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}},
    }
}


@dataclass(frozen=True)
class Case:
    """A pod, the arguments, what upstream's documentation says of it, and why Berth keeps it."""

    upstream_evicts: bool
    pod: Pod
    args: dict[str, Any] = field(default_factory=dict)
    want: tuple[Reason, ...] = ()
    more: dict[str, Sequence[Any]] = field(default_factory=dict)
    because: str = ""
    """Why Berth keeps a pod that upstream would evict; it never is the other way round."""


CASES = {
    # --- without arguments ---
    "a running pod with a controller may go": Case(upstream_evicts=True, pod=running()),
    "a pod without a controller stays": Case(
        upstream_evicts=False, pod=bare_pod(node="node-a"), want=(Reason.NO_CONTROLLER,)
    ),
    "a pod of a DaemonSet stays": Case(
        upstream_evicts=False, pod=running(controller=owner("DaemonSet", "agent")), want=(Reason.DAEMON_POD,)
    ),
    "a mirror pod stays": Case(
        upstream_evicts=False,
        pod=running(controller=owner("Node", "node-a"), annotations={"kubernetes.io/config.mirror": "x"}),
        want=(Reason.MIRROR_POD,),
    ),
    "a pod that is being deleted stays": Case(
        upstream_evicts=False, pod=running(deleted=AN_HOUR_AGO), want=(Reason.TERMINATING,)
    ),
    "a pod of the system stays": Case(
        upstream_evicts=False, pod=running(priority=2_000_000_000), want=(Reason.SYSTEM_CRITICAL,)
    ),
    "a pod of high priority may go": Case(upstream_evicts=True, pod=running(priority=1_000_000_000)),
    "a pod with an emptyDir stays": Case(
        upstream_evicts=False, pod=running(volumes=SCRATCH), want=(Reason.LOCAL_STORAGE,)
    ),
    "a pod with a hostPath stays": Case(
        upstream_evicts=False, pod=running(volumes=FILES), want=(Reason.LOCAL_STORAGE,)
    ),
    "a pod with a claim may go": Case(upstream_evicts=True, pod=running(volumes=DATA)),
    "a pod with devices of its own stays": Case(
        upstream_evicts=True,
        pod=running(resource_claims=({"name": "gpu"},)),
        want=(Reason.RESOURCE_CLAIM,),
        because="a placeholder cannot hold a device",
    ),
    "a pod that has a claim made for it stays": Case(
        upstream_evicts=True,
        pod=running(volumes=(Volume(name="cache", ephemeral={}),)),
        want=(Reason.LOCAL_STORAGE,),
        because="the claim is deleted with the pod",
    ),
    "a pod that does not run yet stays": Case(
        upstream_evicts=True,
        pod=running(phase="Pending"),
        want=(Reason.NOT_RUNNING,),
        because="there is nothing to move",
    ),
    # --- local storage ---
    "a pod with an emptyDir may go if that is said": Case(
        upstream_evicts=True, pod=running(volumes=SCRATCH), args={"evictLocalStoragePods": True}
    ),
    "a pod with a hostPath may go if that is said": Case(
        upstream_evicts=True,
        pod=running(volumes=FILES),
        args={"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}},
    ),
    # --- claims ---
    "a pod with a claim stays if that is said": Case(
        upstream_evicts=False,
        pod=running(volumes=DATA),
        args={"ignorePvcPods": True},
        want=(Reason.PERSISTENT_STORAGE,),
    ),
    "a pod without one may go then": Case(upstream_evicts=True, pod=running(), args={"ignorePvcPods": True}),
    "a claim of a protected class keeps its pod": Case(
        upstream_evicts=False,
        pod=running(volumes=DATA),
        args=FAST_CLAIMS_STAY,
        more={"persistent_volume_claims": (stored("data", "fast"),)},
        want=(Reason.PERSISTENT_STORAGE,),
    ),
    "a claim of another class does not": Case(
        upstream_evicts=True,
        pod=running(volumes=DATA),
        args=FAST_CLAIMS_STAY,
        more={"persistent_volume_claims": (stored("data", "slow"),)},
    ),
    "a claim whose class is not known does": Case(
        upstream_evicts=False,
        pod=running(volumes=DATA),
        args=FAST_CLAIMS_STAY,
        want=(Reason.PERSISTENT_STORAGE,),
    ),
    # --- disruption budgets ---
    "a pod without a budget stays if that is said": Case(
        upstream_evicts=False, pod=running(), args={"ignorePodsWithoutPDB": True}, want=(Reason.WITHOUT_BUDGET,)
    ),
    "a pod with one may go then": Case(
        upstream_evicts=True,
        pod=running(),
        args={"podProtections": {"extraEnabled": ["PodsWithoutPDB"]}},
        more={"disruption_budgets": (disruption_budget(match_labels={"app": "web"}),)},
    ),
    "a pod whose budget is used up stays": Case(
        upstream_evicts=True,
        pod=running(),
        more={"disruption_budgets": (disruption_budget(match_labels={"app": "web"}, allowed=0),)},
        want=(Reason.BUDGET_EXHAUSTED,),
        because="upstream asks for the eviction and is refused by the API server",
    ),
    # --- labels, namespaces, nodes ---
    "a pod that the selector selects may go": Case(
        upstream_evicts=True, pod=running(), args={"labelSelector": {"matchLabels": {"app": "web"}}}
    ),
    "a pod that it does not select stays": Case(
        upstream_evicts=False,
        pod=running(),
        args={"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}},
        want=(Reason.LABELS_NOT_SELECTED,),
    ),
    "an empty selector selects every pod": Case(upstream_evicts=True, pod=running(), args={"labelSelector": {}}),
    "a pod of a namespace with the labels may go": Case(
        upstream_evicts=True,
        pod=running(),
        args={"namespaceLabelSelector": {"matchLabels": {"team": "a"}}},
        more={"namespaces": (namespace("default", labels={"team": "a"}),)},
    ),
    "a pod of a namespace without them stays": Case(
        upstream_evicts=False,
        pod=running(),
        args={"namespaceLabelSelector": {"matchLabels": {"team": "a"}}},
        more={"namespaces": (namespace("default"),)},
        want=(Reason.NAMESPACE_NOT_SELECTED,),
    ),
    "expressions count for namespaces, too": Case(
        upstream_evicts=True,
        pod=running(),
        args={"namespaceLabelSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
        more={"namespaces": (namespace("default"),)},
        want=(Reason.NAMESPACE_NOT_SELECTED,),
        because="upstream passes over a selector without matchLabels",
    ),
    "a pod of an excluded namespace stays": Case(
        upstream_evicts=False,
        pod=running(),
        args={"namespaces": {"exclude": ["default"]}},
        want=(Reason.NAMESPACE_NOT_EVICTABLE,),
    ),
    "a pod of an included namespace may go": Case(
        upstream_evicts=True, pod=running(), args={"namespaces": {"include": ["default"]}}
    ),
    "a pod on a node that is selected may go": Case(
        upstream_evicts=True,
        pod=running(),
        args={"nodeSelector": "pool in (batch,web)"},
        more={"nodes": (node("node-a", labels={"pool": "web"}),)},
    ),
    "a pod on another node stays": Case(
        upstream_evicts=False,
        pod=running(),
        args={"nodeSelector": "pool=batch"},
        more={"nodes": (node("node-a", labels={"pool": "web"}),)},
        want=(Reason.NODE_NOT_SELECTED,),
    ),
    # --- priorities ---
    "a pod below the threshold may go": Case(
        upstream_evicts=True, pod=running(priority=99), args={"priorityThreshold": {"value": 100}}
    ),
    "a pod at the threshold stays": Case(
        upstream_evicts=False,
        pod=running(priority=100),
        args={"priorityThreshold": {"value": 100}},
        want=(Reason.PRIORITY_TOO_HIGH,),
    ),
    "a threshold of zero keeps pods of priority zero": Case(
        upstream_evicts=False,
        pod=running(priority=0),
        args={"priorityThreshold": {"value": 0}},
        want=(Reason.PRIORITY_TOO_HIGH,),
    ),
    "a pod without a priority may go": Case(
        upstream_evicts=True, pod=running(priority=None), args={"priorityThreshold": {"value": 0}}
    ),
    "a threshold by its class": Case(
        upstream_evicts=False,
        pod=running(priority=500),
        args={"priorityThreshold": {"name": "high"}},
        more={"priority_classes": (priority_class("high", 500),)},
        want=(Reason.PRIORITY_TOO_HIGH,),
    ),
    # --- replicas and age ---
    "a pod of a controller with too few stays": Case(
        upstream_evicts=False, pod=running(), args={"minReplicas": 2}, want=(Reason.TOO_FEW_REPLICAS,)
    ),
    "a pod of one with enough may go": Case(
        upstream_evicts=True, pod=running(), args={"minReplicas": 2}, more={"pods": (running(name="web-1"),)}
    ),
    "a replica that has ended is none": Case(
        upstream_evicts=True,
        pod=running(),
        args={"minReplicas": 2},
        more={"pods": (running(name="web-1", phase="Failed"),)},
        want=(Reason.TOO_FEW_REPLICAS,),
        because="upstream counts pods that have ended as well",
    ),
    "at least one replica is no condition": Case(upstream_evicts=True, pod=running(), args={"minReplicas": 1}),
    "a pod that was just started stays": Case(
        upstream_evicts=False,
        pod=running(started=AN_HOUR_AGO),
        args={"minPodAge": "1h0m1s"},
        want=(Reason.TOO_YOUNG,),
    ),
    "a pod that was started long ago may go": Case(
        upstream_evicts=True, pod=running(started=AN_HOUR_AGO), args={"minPodAge": "1h"}
    ),
    "a pod that was not started yet stays": Case(
        upstream_evicts=False, pod=running(started=None), args={"minPodAge": "0s"}, want=(Reason.TOO_YOUNG,)
    ),
    # --- annotations ---
    "the annotation that asks for an eviction overrides what is asked of single pods": Case(
        upstream_evicts=True,
        pod=running(annotations=EVICT, volumes=SCRATCH, priority=100),
        args={
            "priorityThreshold": {"value": 1},
            "labelSelector": {"matchLabels": {"app": "db"}},
            "minReplicas": 9,
            "minPodAge": "100h",
            "ignorePvcPods": True,
            "ignorePodsWithoutPDB": True,
        },
    ),
    "it does not override the namespaces": Case(
        upstream_evicts=False,
        pod=running(annotations=EVICT),
        args={"namespaceLabelSelector": {"matchLabels": {"team": "a"}}},
        more={"namespaces": (namespace("default"),)},
        want=(Reason.NAMESPACE_NOT_SELECTED,),
    ),
    "it does not make a pod come back that nothing makes again": Case(
        upstream_evicts=True,
        pod=bare_pod(node="node-a", annotations=EVICT),
        want=(Reason.NO_CONTROLLER,),
        because="the pod would be lost",
    ),
    "it does not let a DaemonSet's pod go elsewhere": Case(
        upstream_evicts=True,
        pod=running(annotations=EVICT, controller=owner("DaemonSet", "agent")),
        want=(Reason.DAEMON_POD,),
        because="it would come back on the same node",
    ),
    "the annotation against evictions is a wish": Case(upstream_evicts=True, pod=running(annotations=STAY)),
    "it is a command if that is said": Case(
        upstream_evicts=False,
        pod=running(annotations=STAY),
        args={"noEvictionPolicy": "Mandatory"},
        want=(Reason.WANTS_NO_EVICTION,),
    ),
    "of both annotations the one for an eviction wins": Case(
        upstream_evicts=True, pod=running(annotations={**EVICT, **STAY}), args={"noEvictionPolicy": "Mandatory"}
    ),
    # --- several reasons ---
    "every reason is said": Case(
        upstream_evicts=False,
        pod=running(volumes=(*SCRATCH, *DATA), priority=7, annotations=STAY),
        args={
            "namespaces": {"include": ["shop"]},
            "labelSelector": {"matchLabels": {"app": "db"}},
            "priorityThreshold": {"value": 5},
            "minReplicas": 2,
            "minPodAge": "1h",
            "noEvictionPolicy": "Mandatory",
            "ignorePvcPods": True,
            "ignorePodsWithoutPDB": True,
        },
        want=(
            Reason.NAMESPACE_NOT_EVICTABLE,
            Reason.WANTS_NO_EVICTION,
            Reason.LABELS_NOT_SELECTED,
            Reason.PRIORITY_TOO_HIGH,
            Reason.TOO_FEW_REPLICAS,
            Reason.TOO_YOUNG,
            Reason.LOCAL_STORAGE,
            Reason.PERSISTENT_STORAGE,
            Reason.WITHOUT_BUDGET,
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_pod_stays_for_these_reasons_and_where_upstream_says_otherwise_it_is_said_why(case: Case) -> None:
    more = dict(case.more)
    snapshot = Snapshot(pods=(case.pod, *more.pop("pods", ())), **more)  # type: ignore[arg-type]

    found = all_reasons(case.pod, case.args, snapshot)

    assert found == case.want
    if case.upstream_evicts:
        assert bool(found) == bool(case.because)
    else:
        assert found, "never evict what upstream keeps"


def test_below_a_priority_class_that_does_not_exist_no_pod_is_known_to_be() -> None:
    evictor = DefaultEvictor.parse({"priorityThreshold": {"name": "hihg"}})
    view = ClusterView.of(Snapshot(priority_classes=(priority_class("high", 1),)))
    (refusal,) = evictor.filter(view)(running(started=AN_HOUR_AGO))
    assert refusal == Refusal(
        Reason.PRIORITY_TOO_HIGH,
        "the PriorityClass hihg of priorityThreshold does not exist, so no pod is known to be below it",
    )


def test_without_a_time_no_pod_is_old_enough() -> None:
    one = running(started=AN_HOUR_AGO)
    assert reasons(one, {"minPodAge": "1m"}) == ()
    assert reasons(one, {"minPodAge": "1m"}, now=None) == (Reason.TOO_YOUNG,)


def test_nothing_is_read_that_no_argument_needs() -> None:
    def unread() -> Snapshot:
        raise AssertionError("the cluster was read")

    evictor = DefaultEvictor.parse(
        {"labelSelector": {"matchLabels": {"app": "web"}}, "minPodAge": "1s", "priorityThreshold": {"value": 5}}
    )
    assert list(evictor.pre_eviction_filter(ClusterView(unread, NOON))(running(started=AN_HOUR_AGO))) == []
