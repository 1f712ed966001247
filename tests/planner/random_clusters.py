"""Owns random small clusters for properties: every constraint may occur, alone or with others.

It does not own the properties.
"""

from typing import Any

from hypothesis import strategies as st

from berth_core.objects import (
    Affinity,
    LabelSelector,
    Node,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    VolumeNodeAffinity,
)
from berth_core.snapshot import Snapshot
from builders import bare_pod, claim, disruption_budget, namespace, node, owner, pod, volume
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
DISKS = ("ssd", "hdd")

often_none = st.sampled_from((False, False, True))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = {"disk": draw(st.sampled_from(DISKS))}
    if draw(st.sampled_from((True, True, True, False))):
        labels[ZONE] = draw(st.sampled_from(ZONES))
    return node(
        name,
        cpu="8",
        memory="16Gi",
        pods=draw(st.sampled_from(("5", "110", "110"))),
        labels=labels,
        taints=(TAINT,) if draw(often_none) and draw(often_none) else (),
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
    kind = draw(st.sampled_from(("none", "none", "tied", "field", "apart", "apart", "company")))
    scope: dict[str, Any] = draw(
        st.sampled_from(({}, {}, {"namespaces": ("shop",)}, {"namespace_selector": selector(team="a")}))
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
        "volumes": (claimed(draw(st.sampled_from(("bound", "zoned", "lost")))),)
        if draw(often_none) and draw(often_none)
        else (),
    }
    count = draw(st.integers(1, 4))
    return [_replica(draw, f"{name}-{i}", fields, node_names) for i in range(count)]


def _replica(draw: st.DrawFn, name: str, fields: dict[str, Any], node_names: list[str]) -> Pod:
    life = draw(st.sampled_from(("runs",) * 40 + ("leaves", "comes", "ended", "bare")))
    on = draw(st.sampled_from(node_names))
    match life:
        case "leaves":
            return pod(name, node=on, deleted="2026-11-21T12:00:00Z", **fields)
        case "comes":
            return pod(name, nominated_node=on, **fields)
        case "ended":
            return pod(name, node=on, phase="Succeeded", **fields)
        case "bare":
            return bare_pod(name, node=on, **fields)
        case _:
            return pod(name, node=on, **fields)


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
        disruption_budgets=tuple(
            disruption_budget(f"b-{app}", match_labels={"app": app}, allowed=draw(st.integers(0, 2)))
            for app in APPS
            if draw(often_none)
        ),
        persistent_volume_claims=tuple(
            claim(name, namespace=space, volume=f"pv-{name}") for name in ("bound", "zoned") for space in SPACES
        ),
        persistent_volumes=(
            volume("pv-bound", node_affinity=bound),
            volume("pv-zoned", labels={ZONE: "east__west"}),
        ),
    )
