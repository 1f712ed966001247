"""Each rule of placement, with a case in which it allows a move and one in which it does not."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import (
    Container,
    ContainerPort,
    LabelSelector,
    Node,
    NodeSelectorTerm,
    Pod,
    ResourceRequirements,
    Taint,
    Toleration,
)
from berth_core.labels import FENCE_LABEL, STANDING_FENCE_LABEL
from berth_core.snapshot import Snapshot
from berth_core.storage import VolumeNodeAffinity
from berth_descheduler.framework.refusals import RefusalReason as Reason
from builders import claim, namespace, node, pod, volume
from planner.clusters import (
    HOSTNAME,
    ZONE,
    apart,
    claimed,
    company,
    expression,
    node_terms,
    refusal_of,
    selector,
    spread,
    term,
    tied,
)

WEB = {"app": "web"}
ANYBODY = term(select=LabelSelector(), namespace_selector=LabelSelector())
DB = {"app": "db"}


@dataclass(frozen=True)
class Case:
    """May the pod `mover` on node `here` go to node `there`?"""

    want: Reason | None
    mover: Pod
    there: Node = field(default_factory=lambda: node("there"))
    others: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


def mover(**rest: Any) -> Pod:
    return pod("mover", node="here", **{"labels": WEB, **rest})


def other(name: str = "other", *, on: str = "there", **rest: Any) -> Pod:
    return pod(name, node=on, **rest)


def answer(case: Case) -> Reason | None:
    nodes = {one.metadata.name: one for one in (node("here"), case.there, *case.nodes)}
    snapshot = Snapshot(nodes=tuple(nodes.values()), pods=(case.mover, *case.others), **case.more)
    return refusal_of(snapshot, "mover", "there")


GPU = {"nvidia.com/gpu": "2"}
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")

ROOM = {
    "what just fits, fits": Case(None, mover(cpu="4"), node("there", cpu="4")),
    "a thousandth of a core too much does not": Case(
        Reason.INSUFFICIENT_RESOURCES, mover(cpu="4001m"), node("there", cpu="4")
    ),
    "what others hold is not free": Case(
        Reason.INSUFFICIENT_RESOURCES, mover(cpu="3"), node("there", cpu="4"), (other(cpu="2"),)
    ),
    "memory counts as cpu does": Case(Reason.INSUFFICIENT_RESOURCES, mover(memory="2Gi"), node("there", memory="1Gi")),
    "a pod that has ended holds nothing": Case(
        None, mover(cpu="3"), node("there", cpu="4"), (other(cpu="2", phase="Succeeded"),)
    ),
    "a pod that is being deleted still holds its part": Case(
        Reason.INSUFFICIENT_RESOURCES,
        mover(cpu="3"),
        node("there", cpu="4"),
        (other(cpu="2", deleted="2026-11-21T12:00:00Z"),),
    ),
    "a pod nominated to the node has its part kept": Case(
        Reason.INSUFFICIENT_RESOURCES,
        mover(cpu="3"),
        node("there", cpu="4"),
        (pod("coming", cpu="2", nominated_node="there"),),
    ),
    "a pod that waits for any node holds nothing": Case(
        None, mover(cpu="3"), node("there", cpu="4"), (pod("waiting", cpu="2"),)
    ),
    "the last pod slot is free": Case(None, mover(), node("there", pods="2"), (other(),)),
    "no pod slot is free": Case(Reason.INSUFFICIENT_RESOURCES, mover(), node("there", pods="1"), (other(),)),
    "an extended resource is there": Case(
        None, mover(requests=GPU), node("there", allocatable={"nvidia.com/gpu": "2"})
    ),
    "an extended resource is short": Case(
        Reason.INSUFFICIENT_RESOURCES, mover(requests=GPU), node("there", allocatable={"nvidia.com/gpu": "1"})
    ),
    "an extended resource is not there at all": Case(Reason.INSUFFICIENT_RESOURCES, mover(requests=GPU)),
    "a node over-booked in what the pod does not ask for takes it": Case(
        None, mover(cpu="1", memory=None), node("there", memory="1Gi"), (other(cpu="1", memory="2Gi"),)
    ),
    "an init container that needs more than the rest counts": Case(
        Reason.INSUFFICIENT_RESOURCES,
        mover(
            cpu="1",
            init_containers=(Container(name="init", resources=ResourceRequirements(requests={"cpu": "5"})),),
        ),
        node("there", cpu="4"),
    ),
    "overhead counts": Case(
        Reason.INSUFFICIENT_RESOURCES, mover(cpu="4", overhead={"cpu": "1m"}), node("there", cpu="4")
    ),
}

NODES = {
    "a node that is not ready takes nothing": Case(Reason.NODE_NOT_READY, mover(), node("there", ready=False)),
    "a node that says nothing about being ready takes nothing": Case(
        Reason.NODE_NOT_READY, mover(), node("there", ready=None)
    ),
    "a cordoned node takes nothing": Case(Reason.NODE_UNSCHEDULABLE, mover(), node("there", unschedulable=True)),
    "a cordoned node takes nothing even from who would tolerate it": Case(
        Reason.NODE_UNSCHEDULABLE,
        mover(tolerations=(Toleration(operator="Exists"),)),
        node("there", unschedulable=True),
    ),
    "a node that does not say its pod slots takes nothing": Case(
        Reason.NODE_DATA_MISSING, mover(), node("there", pods=None)
    ),
    "a node that another plan drains takes nothing": Case(
        Reason.NODE_DRAINING,
        mover(tolerations=(Toleration(operator="Exists"),)),
        node("there", taints=[Taint(key="berth.volcano.sh/draining", value="plan-1", effect="NoSchedule")]),
    ),
    "the guard of a hand-over comes off again": Case(
        None, mover(), node("there", taints=[Taint(key="berth.volcano.sh/handover", value="1", effect="NoSchedule")])
    ),
    "the pod's own node is no target": Case(Reason.SAME_NODE, pod("mover", node="there")),
}

TAINTS = {
    "a taint keeps the pod off": Case(Reason.UNTOLERATED_TAINT, mover(), node("there", taints=[TAINT])),
    "a tolerated taint does not": Case(
        None,
        mover(tolerations=(Toleration(key="dedicated", value="batch", effect="NoSchedule"),)),
        node("there", taints=[TAINT]),
    ),
    "another value is not tolerated": Case(
        Reason.UNTOLERATED_TAINT,
        mover(tolerations=(Toleration(key="dedicated", value="web"),)),
        node("there", taints=[TAINT]),
    ),
    "NoExecute keeps the pod off": Case(
        Reason.UNTOLERATED_TAINT, mover(), node("there", taints=[Taint(key="gone", effect="NoExecute")])
    ),
    "PreferNoSchedule does not": Case(
        None, mover(), node("there", taints=[Taint(key="old", effect="PreferNoSchedule")])
    ),
}

DISK = node("there", labels={"disk": "ssd", "size": "8"})

TIES = {
    "the node selector holds": Case(None, mover(node_selector={"disk": "ssd"}), DISK),
    "the node selector does not hold": Case(Reason.NODE_AFFINITY, mover(node_selector={"disk": "hdd"}), DISK),
    "In holds": Case(None, mover(affinity=tied(expression("disk", "In", "ssd", "nvme"))), DISK),
    "In does not": Case(Reason.NODE_AFFINITY, mover(affinity=tied(expression("disk", "In", "hdd"))), DISK),
    "NotIn holds for a missing label": Case(None, mover(affinity=tied(expression("gpu", "NotIn", "a100"))), DISK),
    "NotIn does not": Case(Reason.NODE_AFFINITY, mover(affinity=tied(expression("disk", "NotIn", "ssd"))), DISK),
    "Exists holds": Case(None, mover(affinity=tied(expression("disk", "Exists"))), DISK),
    "Exists does not": Case(Reason.NODE_AFFINITY, mover(affinity=tied(expression("gpu", "Exists"))), DISK),
    "DoesNotExist holds": Case(None, mover(affinity=tied(expression("gpu", "DoesNotExist"))), DISK),
    "DoesNotExist does not": Case(Reason.NODE_AFFINITY, mover(affinity=tied(expression("disk", "DoesNotExist"))), DISK),
    "Gt holds": Case(None, mover(affinity=tied(expression("size", "Gt", "7"))), DISK),
    "Gt does not hold for an equal number": Case(
        Reason.NODE_AFFINITY, mover(affinity=tied(expression("size", "Gt", "8"))), DISK
    ),
    "Lt holds": Case(None, mover(affinity=tied(expression("size", "Lt", "9"))), DISK),
    "Lt does not hold for what is no number": Case(
        Reason.NODE_AFFINITY, mover(affinity=tied(expression("disk", "Lt", "9"))), DISK
    ),
    "a field holds": Case(None, mover(affinity=tied(fields=(expression("metadata.name", "In", "there"),)))),
    "a field does not": Case(
        Reason.NODE_AFFINITY, mover(affinity=tied(fields=(expression("metadata.name", "In", "here"),)))
    ),
}


def with_port(name: str, *, on: str, port: int = 80, address: str = "", protocol: str = "TCP") -> Pod:
    listed = (ContainerPort(container_port=port, host_port=port, host_ip=address, protocol=protocol),)
    return pod(name, node=on, containers=(Container(name="app", ports=listed),))


PORTS = {
    "a free host port": Case(None, with_port("mover", on="here"), others=(with_port("a", on="there", port=81),)),
    "a taken host port": Case(Reason.HOST_PORT, with_port("mover", on="here"), others=(with_port("a", on="there"),)),
    "another protocol is another port": Case(
        None, with_port("mover", on="here"), others=(with_port("a", on="there", protocol="UDP"),)
    ),
    "another address is another port": Case(
        None,
        with_port("mover", on="here", address="10.0.0.1"),
        others=(with_port("a", on="there", address="10.0.0.2"),),
    ),
    "every address is one of them": Case(
        Reason.HOST_PORT, with_port("mover", on="here", address="10.0.0.1"), others=(with_port("a", on="there"),)
    ),
}

EAST, WEST = {ZONE: "east"}, {ZONE: "west"}
THERE_EAST = node("there", labels=EAST)
ANYWHERE = LabelSelector()

AFFINITY = {
    "the friend is on the node": Case(
        None, mover(affinity=company(term(select=selector(app="db")))), others=(other(labels=DB),)
    ),
    "the friend is elsewhere": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(select=selector(app="db")))),
        others=(other(labels=DB, on="here"),),
    ),
    "the friend is in the zone": Case(
        None,
        mover(affinity=company(term(ZONE, select=selector(app="db")))),
        THERE_EAST,
        (other(labels=DB, on="third"),),
        (node("third", labels=EAST),),
    ),
    "the friend is in another zone": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(ZONE, select=selector(app="db")))),
        THERE_EAST,
        (other(labels=DB, on="third"),),
        (node("third", labels=WEST),),
    ),
    "a node without the topology's label is no place": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(ZONE, select=selector(app="db")))),
        others=(other(labels=DB),),
    ),
    "a friend that is being deleted is no company": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(select=selector(app="db")))),
        others=(other(labels=DB, deleted="2026-11-21T12:00:00Z"),),
    ),
    "a friend must satisfy every term": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(select=selector(app="db")), term(select=selector(tier="gold")))),
        others=(other(labels=DB), other("second", labels={"tier": "gold"})),
    ),
    "the only one of its kind does not leave its zone": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(ZONE))),
        THERE_EAST,
        nodes=(node("here", labels=WEST),),
    ),
    "the only one of its kind moves within its zone": Case(
        None, mover(affinity=company(term(ZONE))), THERE_EAST, nodes=(node("here", labels=EAST),)
    ),
    "the only one of its zone is no company to itself while others are elsewhere": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(ZONE))),
        THERE_EAST,
        others=(other(labels=WEB, on="west1"),),
        nodes=(node("here", labels=EAST), node("west1", labels=WEST)),
    ),
    "of two that hold together none leaves the other": Case(
        Reason.POD_AFFINITY, mover(affinity=company(term())), others=(other(labels=WEB, on="here"),)
    ),
    "of two that hold together one may follow the other": Case(
        None, mover(affinity=company(term())), others=(other(labels=WEB),)
    ),
    "a pod of another namespace is no friend": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(select=selector(app="db")))),
        others=(other(labels=DB, namespace="shop"),),
    ),
    "a pod of a named namespace is": Case(
        None,
        mover(affinity=company(term(select=selector(app="db"), namespaces=("shop",)))),
        others=(other(labels=DB, namespace="shop"),),
    ),
    "a pod of a namespace with the right labels is": Case(
        None,
        mover(affinity=company(term(select=selector(app="db"), namespace_selector=selector(team="a")))),
        others=(other(labels=DB, namespace="shop"),),
        more={"namespaces": (namespace("shop", labels={"team": "a"}),)},
    ),
    "a pod of a namespace that is not known is not": Case(
        Reason.POD_AFFINITY,
        mover(affinity=company(term(select=selector(app="db"), namespace_selector=selector(team="a")))),
        others=(other(labels=DB, namespace="shop"),),
    ),
    "a pod of any namespace is where all are meant": Case(
        None,
        mover(affinity=company(term(select=selector(app="db"), namespace_selector=ANYWHERE))),
        others=(other(labels=DB, namespace="shop"),),
    ),
    "matchLabelKeys narrow the friends": Case(
        Reason.POD_AFFINITY,
        mover(labels={**WEB, "hash": "1"}, affinity=company(term(match_label_keys=("hash",)))),
        others=(other(labels={**WEB, "hash": "2"}), other("same", on="here", labels={**WEB, "hash": "1"})),
    ),
    "mismatchLabelKeys narrow them the other way": Case(
        None,
        mover(labels={**WEB, "hash": "1"}, affinity=company(term(mismatch_label_keys=("hash",)))),
        others=(other(labels={**WEB, "hash": "2"}),),
    ),
}

ANTI_AFFINITY = {
    "nobody shunned is there": Case(None, mover(affinity=apart(term(select=selector(app="db")))), others=(other(),)),
    "somebody shunned is there": Case(
        Reason.POD_ANTI_AFFINITY, mover(affinity=apart(term(select=selector(app="db")))), others=(other(labels=DB),)
    ),
    "somebody shunned who is being deleted is still there": Case(
        Reason.POD_ANTI_AFFINITY,
        mover(affinity=apart(term(select=selector(app="db")))),
        others=(other(labels=DB, deleted="2026-11-21T12:00:00Z"),),
    ),
    "somebody shunned may come": Case(
        Reason.POD_ANTI_AFFINITY,
        mover(affinity=apart(term(select=selector(app="db")))),
        others=(pod("coming", labels=DB, nominated_node="there"),),
    ),
    "somebody shunned is in the zone": Case(
        Reason.POD_ANTI_AFFINITY,
        mover(affinity=apart(term(ZONE, select=selector(app="db")))),
        THERE_EAST,
        (other(labels=DB, on="third"),),
        (node("third", labels=EAST),),
    ),
    "without the topology's label there is no zone": Case(
        None, mover(affinity=apart(term(ZONE, select=selector(app="db")))), others=(other(labels=DB),)
    ),
    "the old pod is in the replacement's way": Case(
        Reason.POD_ANTI_AFFINITY,
        mover(affinity=apart(term(ZONE))),
        THERE_EAST,
        nodes=(node("here", labels=EAST),),
    ),
    "in another zone it is not": Case(
        None, mover(affinity=apart(term(ZONE))), THERE_EAST, nodes=(node("here", labels=WEST),)
    ),
    "one that is there shuns the pod": Case(
        Reason.OTHERS_ANTI_AFFINITY, mover(), others=(other(labels=DB, affinity=apart(term())),)
    ),
    "one that is there shuns others": Case(
        None, mover(), others=(other(labels=DB, affinity=apart(term(select=selector(app="cache")))),)
    ),
    "one in the zone shuns the pod": Case(
        Reason.OTHERS_ANTI_AFFINITY,
        mover(),
        THERE_EAST,
        (other(labels=DB, on="third", affinity=apart(term(ZONE))),),
        (node("third", labels=EAST),),
    ),
    "one that is there shuns everybody in every namespace, placeholders too": Case(
        Reason.OTHERS_ANTI_AFFINITY,
        mover(labels={}),
        others=(
            other(
                namespace="shop",
                affinity=apart(
                    term(
                        select=LabelSelector(match_expressions=(expression("app", "DoesNotExist"),)),
                        namespaces=("berth-system",),
                    )
                ),
            ),
        ),
    ),
    "the fence of a hand-over, which comes and goes, counts for nothing": Case(
        None, mover(), others=(other(namespace="berth-system", labels={FENCE_LABEL: "true"}, affinity=apart(ANYBODY)),)
    ),
    "a fence that stands until capacity is free keeps the pod off": Case(
        Reason.OTHERS_ANTI_AFFINITY,
        mover(),
        others=(
            other(
                namespace="berth-system",
                labels={FENCE_LABEL: "true", STANDING_FENCE_LABEL: "pods"},
                affinity=apart(ANYBODY),
            ),
        ),
    ),
    "one that may shun the pod's namespace is taken to shun it": Case(
        Reason.OTHERS_ANTI_AFFINITY,
        mover(),
        others=(other(namespace="shop", affinity=apart(term(namespace_selector=selector(team="a")))),),
    ),
}


def webs(**on: int) -> tuple[Pod, ...]:
    return tuple(other(f"{name}-{i}", on=name, labels=WEB) for name, count in on.items() for i in range(count))


ZONED = (node("here", labels=EAST), node("west1", labels=WEST))


def even(**rest: Any) -> Pod:
    return mover(spread=(spread(**rest),))


SPREAD = {
    "a move within the zone changes nothing": Case(None, even(), THERE_EAST, webs(west1=1), ZONED),
    "a zone may be one above the lowest": Case(
        None, even(), THERE_EAST, webs(west1=1, there=1), (node("here", labels=WEST), node("west1", labels=WEST))
    ),
    "it may not be two above": Case(
        Reason.TOPOLOGY_SPREAD,
        even(),
        THERE_EAST,
        webs(there=1),
        (node("here", labels=WEST), node("west1", labels=WEST)),
    ),
    "with a skew of two it may": Case(
        None,
        even(max_skew=2),
        THERE_EAST,
        webs(there=1),
        (node("here", labels=WEST), node("west1", labels=WEST)),
    ),
    "a node without the topology's label does not count": Case(
        Reason.TOPOLOGY_SPREAD, even(), node("there"), webs(), ZONED
    ),
    "too few domains make the lowest nothing": Case(
        Reason.TOPOLOGY_SPREAD, even(min_domains=3), THERE_EAST, webs(there=1, west1=1), ZONED
    ),
    "enough domains do not": Case(None, even(min_domains=2), THERE_EAST, webs(there=1, west1=1), ZONED),
    "pods that are being deleted do not count": Case(
        None,
        even(),
        THERE_EAST,
        tuple(other(f"old-{i}", labels=WEB, deleted="2026-11-21T12:00:00Z") for i in range(3)),
        ZONED,
    ),
    "pods that may come count where they are in the way": Case(
        Reason.TOPOLOGY_SPREAD,
        even(),
        THERE_EAST,
        (pod("coming", labels=WEB, nominated_node="there"),),
        ZONED,
    ),
    "pods of other namespaces do not count": Case(
        None,
        even(),
        THERE_EAST,
        tuple(other(f"far-{i}", labels=WEB, namespace="shop") for i in range(3)),
        ZONED,
    ),
    "a constraint that is a wish keeps nobody off": Case(
        None, mover(spread=(spread(when_unsatisfiable="ScheduleAnyway"),)), THERE_EAST, webs(there=4), ZONED
    ),
    "matchLabelKeys leave other versions out": Case(
        None,
        mover(labels={**WEB, "hash": "2"}, spread=(spread(match_label_keys=("hash",)),)),
        THERE_EAST,
        webs(there=4),
        ZONED,
    ),
    "nodes that the pod may not use do not make a lowest": Case(
        None,
        mover(node_selector={"disk": "ssd"}, spread=(spread(),)),
        node("there", labels={"disk": "ssd", **EAST}),
        webs(there=1),
        (node("here", labels={"disk": "ssd", **EAST}), node("third", labels=WEST)),
    ),
    "with nodeAffinityPolicy Ignore they do": Case(
        Reason.TOPOLOGY_SPREAD,
        mover(node_selector={"disk": "ssd"}, spread=(spread(node_affinity_policy="Ignore"),)),
        node("there", labels={"disk": "ssd", **EAST}),
        webs(there=1),
        (node("here", labels={"disk": "ssd", **EAST}), node("third", labels=WEST)),
    ),
    "tainted nodes make a lowest": Case(
        Reason.TOPOLOGY_SPREAD,
        even(),
        THERE_EAST,
        webs(there=1),
        (node("here", labels=EAST), node("third", labels=WEST, taints=[TAINT])),
    ),
    "with nodeTaintsPolicy Honor none may be left, as any node may be a source and carry our taint": Case(
        Reason.TOPOLOGY_SPREAD,
        even(node_taints_policy="Honor"),
        THERE_EAST,
        webs(there=1),
        (node("here", labels=EAST), node("third", labels=WEST, taints=[TAINT])),
    ),
}

PINNED = VolumeNodeAffinity(
    required=node_terms(NodeSelectorTerm(match_expressions=(expression(HOSTNAME, "In", "there"),)))
)
ELSEWHERE = VolumeNodeAffinity(
    required=node_terms(NodeSelectorTerm(match_expressions=(expression(HOSTNAME, "In", "here"),)))
)


def stored(want: Reason | None, there: Node | None = None, **of_volume: Any) -> Case:
    more = {
        "persistent_volume_claims": (claim("data", volume="pv-a"),),
        "persistent_volumes": (volume("pv-a", **of_volume),),
    }
    return Case(want, mover(volumes=(claimed(),)), there or node("there"), more=more)


VOLUMES = {
    "a volume without a place goes anywhere": stored(None),
    "a volume of the node's zone": stored(None, THERE_EAST, labels=EAST),
    "a volume of several zones": stored(None, THERE_EAST, labels={ZONE: "west__east"}),
    "a volume of another zone": stored(Reason.VOLUME_ZONE, THERE_EAST, labels=WEST),
    "an old zone label means the new one": stored(
        Reason.VOLUME_ZONE, THERE_EAST, labels={"failure-domain.beta.kubernetes.io/zone": "west"}
    ),
    "nodes without zones take volumes of any": stored(None, labels=WEST),
    "a volume that the node reaches": stored(None, node_affinity=PINNED),
    "a volume that it does not reach": stored(Reason.VOLUME_NODE, node_affinity=ELSEWHERE),
    "a claim that is not known": Case(Reason.UNKNOWN_VOLUME, mover(volumes=(claimed(),))),
    "a claim that is not bound": Case(
        Reason.UNKNOWN_VOLUME, mover(volumes=(claimed(),)), more={"persistent_volume_claims": (claim("data"),)}
    ),
    "a claim that has lost its volume": Case(
        Reason.UNKNOWN_VOLUME,
        mover(volumes=(claimed(),)),
        more={
            "persistent_volume_claims": (claim("data", volume="pv-a", phase="Pending"),),
            "persistent_volumes": (volume("pv-a"),),
        },
    ),
    "a claim that is being deleted": Case(
        Reason.UNKNOWN_VOLUME,
        mover(volumes=(claimed(),)),
        more={
            "persistent_volume_claims": (claim("data", volume="pv-a", deleted="2026-11-21T12:00:00Z"),),
            "persistent_volumes": (volume("pv-a"),),
        },
    ),
    "a volume that is not known": Case(
        Reason.UNKNOWN_VOLUME,
        mover(volumes=(claimed(),)),
        more={"persistent_volume_claims": (claim("data", volume="pv-a"),)},
    ),
}


TABLE = {
    f"{group}: {title}": case
    for group, cases in {
        "room": ROOM,
        "node": NODES,
        "taint": TAINTS,
        "tie": TIES,
        "port": PORTS,
        "affinity": AFFINITY,
        "anti-affinity": ANTI_AFFINITY,
        "spread": SPREAD,
        "volume": VOLUMES,
    }.items()
    for title, case in cases.items()
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_move_is_allowed_just_where_kube_scheduler_would_place_the_pod(case: Case) -> None:
    assert answer(case) is case.want


NO_LABEL = selector()
NO_LABEL = msgspec.structs.replace(NO_LABEL, match_expressions=(expression("app", "NotIn", "no label value"),))


@pytest.mark.parametrize(
    "tie",
    [
        {"affinity": apart(term(select=NO_LABEL))},
        {"affinity": company(term(select=NO_LABEL))},
        {"affinity": apart(term(select=selector(app="web"), namespace_selector=NO_LABEL))},
        {"affinity": apart(term(select=selector(app="no label value")))},
        {"spread": [spread(HOSTNAME, select=NO_LABEL)]},
        {"affinity": tied(expression("app", "NotIn", "no label value"))},
    ],
)
def test_a_pod_with_a_selector_that_cannot_be_built_fits_nowhere(tie: dict[str, Any]) -> None:
    snapshot = Snapshot(nodes=(node("a"), node("b")), pods=(pod("p", node="a", **tie),))
    assert refusal_of(snapshot, "p", "b") in {Reason.POD_DATA_ODD, Reason.NODE_AFFINITY}
