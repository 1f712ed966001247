"""Random small clusters for properties: every constraint may occur, alone or with others."""

import random
from dataclasses import fields
from typing import Any

import msgspec
from hypothesis import strategies as st

from berth_core import (
    Affinity,
    LabelSelector,
    Node,
    NodeSelectorTerm,
    Pod,
    PodDisruptionBudget,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from berth_core.reservations import Reservation, ReservationPhase
from berth_core.snapshot import Snapshot
from berth_core.storage import PersistentVolumeClaim, VolumeNodeAffinity
from builders import (
    bare_pod,
    claim,
    container,
    disruption_budget,
    namespace,
    node,
    owner,
    pod,
    reservation,
    sidecar,
    task,
    volume,
)
from planner.clusters import (
    HOSTNAME,
    ZONE,
    apart,
    claimed,
    company,
    expression,
    node_terms,
    selector,
    spread,
    term,
    tied,
)

APPS = ("web", "db", "cache")
SPACES = ("default", "shop")
ZONES = ("east", "west", "north")
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
WISH = Taint(key="dedicated", value="web", effect="PreferNoSchedule")
EXPEL = Taint(key="dedicated", value="db", effect="NoExecute")
GPU = "example.com/gpu"
DRAINED_AT = "berth.volcano.sh/last-defragmented"
FIXED = 2_000_000_000
"""A priority from which on pods are the system's own."""

DISKS = ("ssd", "hdd")

VOLUMES = (
    *((),) * 30,
    *((claimed(name),) for name in ("bound", "zoned", "alone", "lost")),
    (Volume(name="scratch", empty_dir={}),),
)
BIG_START = container("prepare", cpu="1500m")
HELPER = sidecar(cpu="200m")
LIVES = ("leaves", "comes", "ended", "bare", "unready", "unready", "lost", "daemon", "mirror", "handed over")

often_none = st.sampled_from((False, False, True))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = {"disk": draw(st.sampled_from(DISKS))}
    if draw(st.sampled_from((True, True, True, False))):
        labels[ZONE] = draw(st.sampled_from(ZONES))
    if draw(st.sampled_from((False,) * 14 + (True,))):
        labels["critical"] = "true"
    return node(
        name,
        cpu="8",
        memory="16Gi",
        pods=draw(st.sampled_from(("5", "110", "110"))),
        allocatable=draw(st.sampled_from(({}, {GPU: "1"}, {GPU: "2"}))),
        labels=labels,
        annotations=draw(st.sampled_from(({},) * 14 + ({DRAINED_AT: "2026-11-21T11:30:00Z"},))),
        taints=draw(st.sampled_from(((),) * 8 + ((TAINT,), (WISH,), (EXPEL,)))),
        unschedulable=draw(st.sampled_from((False,) * 19 + (True,))),
        ready=draw(st.sampled_from((True,) * 19 + (False,))),
    )


@st.composite
def selectors(draw: st.DrawFn) -> LabelSelector:
    if draw(st.sampled_from((True,) * 5 + (False,))):
        return selector(app=draw(st.sampled_from(APPS)))
    return LabelSelector(match_expressions=(expression("app", "NotIn", draw(st.sampled_from(APPS))),))


@st.composite
def affinities(draw: st.DrawFn) -> Affinity | None:
    kind = draw(st.sampled_from(("none", "none", "tied", "field", "apart", "apart", "company", "both")))
    scope: dict[str, Any] = draw(
        st.sampled_from(
            (
                {},
                {},
                {"namespaces": ("shop",)},
                {"namespace_selector": selector(team="a")},
                {"match_label_keys": ("version",)},
                {"mismatch_label_keys": ("version",)},
            )
        )
    )
    one = term(draw(st.sampled_from((HOSTNAME, ZONE))), select=draw(selectors()), **scope)
    match kind:
        case "tied":
            return tied(expression("disk", draw(st.sampled_from(("In", "NotIn"))), "ssd"))
        case "field":
            return tied(fields=(expression("metadata.name", "NotIn", "n0"),))
        case "apart":
            return apart(one)
        case "company":
            return company(one)
        case "both":
            return company(one, term(ZONE, select=one.label_selector))
        case _:
            return None


@st.composite
def spreads(draw: st.DrawFn) -> tuple[TopologySpreadConstraint, ...]:
    if draw(st.sampled_from((True, True, False))):
        return ()
    return (
        spread(
            draw(st.sampled_from((HOSTNAME, ZONE))),
            max_skew=draw(st.integers(1, 3)),
            select=draw(selectors()),
            min_domains=draw(st.sampled_from((None, None, 2))),
            node_affinity_policy=draw(st.sampled_from(("", "Ignore"))),
            node_taints_policy=draw(st.sampled_from(("", "Honor"))),
            match_label_keys=draw(st.sampled_from(((), ("version",)))),
        ),
    )


@st.composite
def families(draw: st.DrawFn, number: int, node_names: list[str]) -> list[Pod]:
    """The pods of one controller, wherever they happen to be."""
    name = f"rs-{number}"
    version = draw(st.sampled_from(("1", "2")))
    fields: dict[str, Any] = {
        "namespace": draw(st.sampled_from(SPACES)),
        "labels": {"app": draw(st.sampled_from(APPS)), "version": version},
        "controller": owner(name=name),
        "cpu": draw(st.sampled_from(("100m", "250m", "500m", "1"))),
        "memory": draw(st.sampled_from((None, "1Gi"))),
        "affinity": draw(affinities()),
        "spread": draw(spreads()),
        "tolerations": (Toleration(key="dedicated", operator="Exists"),) if draw(often_none) else (),
        "host_ports": (8080,) if draw(often_none) and draw(often_none) else (),
        "volumes": draw(st.sampled_from(VOLUMES)),
        "requests": draw(st.sampled_from(({}, {}, {}, {GPU: "1"}))),
        "priority": draw(st.sampled_from((*(0,) * 20, 100, 100, -5, FIXED))),
        "overhead": draw(st.sampled_from(({}, {}, {}, {"cpu": "100m"}))),
        "init_containers": draw(st.sampled_from(((), (), (), (BIG_START,), (HELPER, BIG_START)))),
    }
    count = draw(st.integers(1, 4))
    return [_replica(draw, f"{name}-{i}", fields, node_names) for i in range(count)]


def _replica(draw: st.DrawFn, name: str, fields: dict[str, Any], node_names: list[str]) -> Pod:
    life = draw(st.sampled_from(("runs",) * 90 + LIVES))
    on = draw(st.sampled_from(node_names))
    made_by = {"daemon": owner("DaemonSet", "agent"), "mirror": owner("Node", on)}.get(life, fields["controller"])
    marks = {"berth.volcano.sh/reservation": "uid"} if life == "handed over" else {}
    changed: dict[str, Any] = {
        **fields,
        "controller": made_by,
        "labels": {**fields["labels"], **marks},
        "annotations": {"kubernetes.io/config.mirror": "1"} if life == "mirror" else {},
        "deleted": "2026-11-21T12:00:00Z" if life == "leaves" else None,
        "phase": {"ended": "Succeeded", "lost": "Unknown"}.get(life),
        "ready": False if life in ("unready", "lost") else None,
        **({"nominated_node": on} if life == "comes" else {"node": on}),
    }
    return bare_pod(name, **changed) if life == "bare" else pod(name, **changed)


@st.composite
def budgets(draw: st.DrawFn, app: str) -> PodDisruptionBudget:
    """A budget over the pods of an app, or over all of one version."""
    made = disruption_budget(
        f"b-{app or 'all'}",
        match_labels={"app": app} if app else {},
        namespace=draw(st.sampled_from(SPACES)),
        allowed=draw(st.integers(0, 2)),
    )
    chosen = made.spec.selector if app else LabelSelector(match_expressions=(expression("version", "In", "2"),))
    healthy = draw(st.integers(0, 3))
    return msgspec.structs.replace(
        made,
        spec=msgspec.structs.replace(
            made.spec,
            selector=chosen,
            unhealthy_pod_eviction_policy=draw(st.sampled_from(("", "IfHealthyBudget", "AlwaysAllow"))),
        ),
        status=msgspec.structs.replace(made.status, current_healthy=healthy, desired_healthy=draw(st.integers(0, 3))),
    )


def claim_of(name: str, space: str) -> PersistentVolumeClaim:
    """A bound claim; the one called `alone` is for one pod at a time."""
    made = claim(name, namespace=space, volume=f"pv-{name}")
    modes = ("ReadWriteOncePod",) if name == "alone" else ("ReadWriteMany",)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, access_modes=modes))


@st.composite
def promises(draw: st.DrawFn, number: int, node_names: list[str]) -> Reservation:
    """A Reservation of one place, of which no placeholder is there yet."""
    on = draw(st.sampled_from(node_names))
    return reservation(
        f"place-{number}",
        tasks=(task(nodes=(on,), cpu=draw(st.sampled_from(("500m", "2"))), memory=None),),
        phase=draw(st.sampled_from((None, ReservationPhase.PENDING, ReservationPhase.FAILED))),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """A cluster of up to eight nodes and some thirty pods; some nodes are well used, the others hardly."""
    low = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    high = [f"high{i}" for i in range(draw(st.integers(1, 4)))]
    names = [*low, *high]
    where = [*low, *low, *high]
    pods = [one for i in range(draw(st.integers(1, 6))) for one in draw(families(i, where))]
    pods += [pod(f"filler-{on}", node=on, cpu="5", memory=None, controller=owner(name=f"filler-{on}")) for on in high]
    bound = VolumeNodeAffinity(
        required=node_terms(NodeSelectorTerm(match_expressions=(expression("disk", "In", "ssd"),)))
    )
    return Snapshot(
        nodes=tuple(draw(nodes(name)) for name in names),
        pods=tuple(pods),
        namespaces=(namespace("default"), namespace("shop", labels={"team": "a"})),
        disruption_budgets=tuple(draw(budgets(app)) for app in (*APPS, "") if draw(often_none)),
        reservations=tuple(draw(promises(i, names)) for i in range(draw(st.sampled_from((0, 0, 1))))),
        persistent_volume_claims=tuple(
            claim_of(name, space) for name in ("bound", "zoned", "alone") for space in SPACES
        ),
        persistent_volumes=(
            volume("pv-bound", node_affinity=bound),
            volume("pv-zoned", labels={ZONE: "east__west"}),
            volume("pv-alone"),
        ),
    )


@st.composite
def tight_clusters(draw: st.DrawFn) -> Snapshot:
    """Up to six nodes of eight cores, some nearly full: large pods have to wait for smaller ones to give way."""
    names = [f"n{i}" for i in range(draw(st.integers(3, 6)))]
    pods: list[Pod] = []
    for on in names:
        free = 8 - draw(st.integers(0, 4))
        while free >= (cores := draw(st.sampled_from((1, 1, 2, 3, 4)))) and len(pods) < 30:
            free -= cores
            pods.append(_tight_pod(draw, f"p{len(pods)}", on, cores))
    return Snapshot(
        nodes=tuple(node(name, cpu="8", memory="16Gi", labels={ZONE: draw(st.sampled_from(ZONES))}) for name in names),
        pods=tuple(pods),
        namespaces=(namespace("default"), namespace("shop", labels={"team": "a"})),
        disruption_budgets=tuple(draw(budgets(app)) for app in APPS if draw(often_none) and draw(often_none)),
    )


def _tight_pod(draw: st.DrawFn, name: str, on: str, cores: int) -> Pod:
    constrained = draw(st.sampled_from((False,) * 7 + (True,)))
    return pod(
        name,
        node=on,
        cpu=str(cores),
        memory=None,
        labels={"app": draw(st.sampled_from(APPS)), "version": "1"},
        controller=owner(name=name),
        affinity=draw(affinities()) if constrained else None,
        spread=draw(spreads()) if constrained else (),
    )


def in_another_order(snapshot: Snapshot, chance: random.Random) -> Snapshot:
    """Return a snapshot of the same objects, each kind of them shuffled."""
    named = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
    shuffled = {name: tuple(chance.sample(kept, len(kept))) for name, kept in named.items() if isinstance(kept, tuple)}
    return Snapshot(**named | shuffled)
