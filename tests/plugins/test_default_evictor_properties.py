"""What holds of `DefaultEvictor` for any pod and any arguments, by a second reading of what upstream documents."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from berth_core import Pod, Volume
from berth_core.clock import format_timestamp
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.planner.problem import Problem
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from builders import NOON, disruption_budget, namespace, node, owner, priority_class
from planner.clusters import claimed
from planner_settings import planner_settings
from plugins.evictor_cases import only, reasons, running, stored
from properties import holds_for

EVICT = "descheduler.alpha.kubernetes.io/evict"
STAY = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
SCOPE = {Reason.NODE_NOT_SELECTED, Reason.NAMESPACE_NOT_EVICTABLE, Reason.NAMESPACE_NOT_SELECTED}

MADE_OF = {
    "scratch": Volume(name="scratch", empty_dir={}),
    "files": Volume(name="files", host_path={"path": "/"}),
    "fast": claimed("fast"),
    "slow": claimed("slow"),
}


def at(minutes_ago: int) -> str:
    return format_timestamp(NOON - timedelta(minutes=minutes_ago))


pods = st.builds(
    lambda namespace, app, on, priority, age, volumes, marks, family: running(
        name="asked",
        namespace=namespace,
        labels={"app": app},
        node=on,
        priority=priority,
        started=None if age is None else at(age),
        volumes=tuple(MADE_OF[name] for name in sorted(volumes)),
        annotations=dict.fromkeys(marks, ""),
        controller=owner(name=family),
    ),
    namespace=st.sampled_from(["default", "shop"]),
    app=st.sampled_from(["web", "db"]),
    on=st.sampled_from(["batch", "spot"]),
    priority=st.sampled_from([None, -5, 0, 7, 100]),
    age=st.sampled_from([None, 0, 10, 600]),
    volumes=st.sets(st.sampled_from(sorted(MADE_OF)), max_size=2),
    marks=st.sets(st.sampled_from([EVICT, STAY])),
    family=st.sampled_from(["large", "small"]),
)
arguments: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.sampled_from(["pool=batch", "pool notin (batch)", "pool"]),
        "labelSelector": st.sampled_from([{}, {"matchLabels": {"app": "web"}}]),
        "namespaceLabelSelector": st.just({"matchLabels": {"team": "a"}}),
        "namespaces": st.sampled_from([{"include": ["shop"]}, {"exclude": ["shop"]}]),
        "priorityThreshold": st.sampled_from([{"value": 0}, {"value": 50}, {"name": "high"}]),
        "minReplicas": st.integers(0, 4),
        "minPodAge": st.sampled_from(["0s", "5m", "1h"]),
        "noEvictionPolicy": st.sampled_from(["Preferred", "Mandatory"]),
        "evictLocalStoragePods": st.booleans(),
        "ignorePvcPods": st.booleans(),
        "ignorePodsWithoutPDB": st.booleans(),
        "nodeFit": st.booleans(),
    },
)


def around(asked: Pod) -> Snapshot:
    """A cluster in which a pod has three siblings or none, and a budget if its app is web."""
    siblings = [
        running(name=f"other-{n}", namespace=asked.metadata.namespace, controller=owner(name="large")) for n in range(3)
    ]
    return Snapshot(
        pods=(asked, *siblings),
        nodes=(node("batch", labels={"pool": "batch"}), node("spot", labels={"pool": "spot"})),
        namespaces=(namespace("default"), namespace("shop", labels={"team": "a"})),
        priority_classes=(priority_class("high", 100),),
        persistent_volume_claims=(stored("fast", "ssd"), stored("slow", "hdd")),
        disruption_budgets=tuple(
            disruption_budget(f"b-{space}", namespace=space, match_labels={"app": "web"}, allowed=1)
            for space in ("default", "shop")
        ),
    )


def documented(asked: Pod, args: dict[str, Any]) -> set[Reason]:
    """What speaks against evicting a pod, told from the documentation and from how the cluster is made."""
    labels, notes, names = asked.metadata.labels, asked.metadata.annotations, {one.name for one in asked.spec.volumes}
    on, space, priority = asked.spec.node_name, asked.metadata.namespace, asked.spec.priority
    threshold = args.get("priorityThreshold", {})
    least = 100 if threshold.get("name") else threshold.get("value")
    age = {None: None, at(0): 0, at(10): 10, at(600): 600}[asked.status.start_time]
    youngest = {"0s": 0, "5m": 5, "1h": 60, None: None}[args.get("minPodAge")]
    selected = {"pool=batch": ["batch"], "pool notin (batch)": ["spot"], "pool": ["batch", "spot"]}
    scope = {
        Reason.NODE_NOT_SELECTED: on not in selected.get(args.get("nodeSelector", ""), [on]),
        Reason.NAMESPACE_NOT_SELECTED: "namespaceLabelSelector" in args and space != "shop",
        Reason.NAMESPACE_NOT_EVICTABLE: (args.get("namespaces", {}).get("include") == ["shop"] and space != "shop")
        or (args.get("namespaces", {}).get("exclude") == ["shop"] and space == "shop"),
    }
    single = {
        Reason.LABELS_NOT_SELECTED: bool(args.get("labelSelector")) and labels["app"] != "web",
        Reason.PRIORITY_TOO_HIGH: least is not None and priority is not None and priority >= least,
        Reason.TOO_FEW_REPLICAS: (4 if asked.controller == owner(name="large") else 1) < args.get("minReplicas", 0) > 1,
        Reason.TOO_YOUNG: youngest is not None and (age is None or age < youngest),
        Reason.WANTS_NO_EVICTION: args.get("noEvictionPolicy") == "Mandatory" and STAY in notes,
        Reason.LOCAL_STORAGE: not args.get("evictLocalStoragePods") and bool(names & {"scratch", "files"}),
        Reason.PERSISTENT_STORAGE: bool(args.get("ignorePvcPods")) and bool(names & {"fast", "slow"}),
        Reason.WITHOUT_BUDGET: bool(args.get("ignorePodsWithoutPDB")) and labels["app"] != "web",
    }
    asked_for = scope if EVICT in notes else {**scope, **single}
    return {reason for reason, holds in asked_for.items() if holds}


@holds_for(pods, arguments, quick=30, deep=300)
def test_a_pod_stays_for_exactly_the_documented_reasons(asked: Pod, args: dict[str, Any]) -> None:
    found = reasons(asked, args, around(asked))

    assert set(found) == documented(asked, args)
    assert len(found) == len(set(found))


@holds_for(pods, arguments, arguments, quick=30, deep=300)
def test_more_arguments_let_no_more_pods_go(asked: Pod, args: dict[str, Any], more: dict[str, Any]) -> None:
    tightening = {name: value for name, value in more.items() if name not in args and name != "evictLocalStoragePods"}

    few = reasons(asked, args, around(asked))
    many = reasons(asked, {**args, **tightening}, around(asked))

    assert set(few) <= set(many)


@holds_for(pods, arguments, quick=30, deep=300)
def test_the_annotation_overrides_what_is_asked_of_single_pods_and_nothing_else(
    asked: Pod, args: dict[str, Any]
) -> None:
    snapshot = around(asked)
    without = set(reasons(unmarked(asked), args, snapshot))
    marked = running(
        name="asked",
        namespace=asked.metadata.namespace,
        labels=asked.metadata.labels,
        node=asked.spec.node_name,
        annotations={EVICT: ""},
        volumes=asked.spec.volumes,
        controller=asked.controller,
    )

    assert set(reasons(marked, args, snapshot)) == without & SCOPE


def unmarked(asked: Pod) -> Pod:
    return running(
        name="asked",
        namespace=asked.metadata.namespace,
        labels=asked.metadata.labels,
        node=asked.spec.node_name,
        volumes=asked.spec.volumes,
        controller=asked.controller,
    )


@holds_for(pods, arguments, quick=30, deep=300)
def test_the_last_word_is_the_first_word_while_nothing_changes(asked: Pod, args: dict[str, Any]) -> None:
    view, evictor = ClusterView.of(around(asked), NOON), DefaultEvictor.parse(args)

    assert list(evictor.filter(view)(asked)) == list(evictor.pre_eviction_filter(view)(asked))


@holds_for(pods, arguments, quick=30, deep=300)
def test_the_planner_keeps_a_pod_for_every_reason_of_berth_and_of_the_evictor(asked: Pod, args: dict[str, Any]) -> None:
    snapshot = around(asked)
    evictor = only(DefaultEvictor.parse(args))
    problem = Problem.from_snapshot(snapshot, planner_settings(plugins=evictor, now=NOON))

    refusal = problem.pod_refusals.get(problem.cluster.pod_numbers[asked.metadata.namespace, "asked"])

    hard = [one.reason for one in Evictability(snapshot).refusals(asked)]
    said = [] if refusal is None else [refusal.reason, *(one.reason for one in refusal.also)]
    assert said[: len(hard)] == hard
    assert set(reasons(asked, args, snapshot)) <= set(said)
