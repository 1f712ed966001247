"""Answers that are computed once for many nodes or pods are those that each of them would get by itself."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pytest
from hypothesis import strategies as st

from berth_core import (
    Affinity,
    ContainerStatus,
    Node,
    NodeAffinity,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    matches_labels,
    matches_node_affinity,
    untolerated_taint,
)
from berth_core.snapshot import Snapshot
from berth_core.storage import VolumeNodeAffinity
from berth_descheduler.framework import Refusal
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets, budget_key
from berth_descheduler.planner.simulation import Cluster, NodeTies, PodPresence, State, VolumeIndex, node_part
from berth_descheduler.planner.simulation.node_fit import NodeSets, bits_of, flags_of, target_refusal
from berth_descheduler.planner.simulation.pod_classes import PodClass, PodClasses
from berth_descheduler.planner.simulation.pod_terms import (
    Match,
    TermReader,
    is_everything,
    resolve_term,
    with_label_keys,
)
from berth_descheduler.planner.simulation.volumes import ZONE_LABELS
from builders import claim, disruption_budget, node, owner, pod, volume
from planner.clusters import ZONE, claimed, expression, node_terms, selector, spread, tied
from planner.random_clusters import clusters
from properties import holds_for

# --- nodes ----------------------------------------------------------------------------------------------------------

LABELLED = (
    node("a", labels={"disk": "ssd", "generation": "3", ZONE: "east"}),
    node("b", labels={"disk": "", "generation": "07", ZONE: "west"}, taints=[Taint(key="x", effect="NoSchedule")]),
    node("c", labels={"generation": "new", "topology.kubernetes.io/region": "here"}),
    node("d", labels={"disk": "hdd"}, taints=[Taint(key="x", value="y", effect="NoExecute")]),
    node("e"),
)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")
VALUES = ("ssd", "hdd", "", "3", "5", "-1", "new", "a", "e", "east")

requirements = st.builds(
    lambda key, operator, values: expression(key, operator, *values),
    st.sampled_from(("disk", "generation", ZONE, "none")),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(VALUES), max_size=3),
)
fields = st.builds(
    lambda key, operator, values: expression(key, operator, *values),
    st.sampled_from(("metadata.name", "metadata.name", "metadata.uid")),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(("a", "e", "lost")), max_size=2),
)
terms = st.builds(
    lambda labels, names: NodeSelectorTerm(match_expressions=tuple(labels), match_fields=tuple(names)),
    st.lists(requirements, max_size=2),
    st.lists(fields, max_size=1),
)
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(("", "x", "z")),
    operator=st.sampled_from(("", "Equal", "Exists", "Gt")),
    value=st.sampled_from(("", "y")),
    effect=st.sampled_from(("", "NoSchedule", "NoExecute")),
)


def as_flags(bits: int) -> list[bool]:
    return [bool(one) for one in flags_of(bits, len(LABELLED))]


@holds_for(st.lists(terms, max_size=3), st.sampled_from(({}, {"disk": ""}, {"disk": "ssd"}, {"none": "x"})), deep=40)
def test_a_node_affinity_selects_the_nodes_that_it_selects_one_by_one(
    several: list[NodeSelectorTerm], chosen: dict[str, str]
) -> None:
    required = NodeAffinity(required_during_scheduling_ignored_during_execution=node_terms(*several))
    spec = PodSpec(node_selector=chosen, affinity=Affinity(node_affinity=required))

    assert as_flags(NodeSets(LABELLED).selected_by(spec)) == [matches_node_affinity(spec, one) for one in LABELLED]


@holds_for(st.lists(st.lists(tolerations, max_size=3).map(tuple), min_size=1, max_size=4), deep=40)
def test_tolerations_open_the_nodes_that_they_open_one_by_one(several: list[tuple[Toleration, ...]]) -> None:
    sets = NodeSets(LABELLED)
    for some in several:
        open_nodes = [untolerated_taint(some, one.taints) is None for one in LABELLED]

        assert as_flags(sets.tolerated_by(some)) == open_nodes


@pytest.mark.parametrize("count", [0, 1, 8, 9, 200])
def test_bits_and_flags_say_the_same(count: int) -> None:
    chosen = {index for index in range(count) if index % 3 == 0}

    assert [bool(one) for one in flags_of(bits_of(chosen, count), count)] == [one in chosen for one in range(count)]


@pytest.mark.parametrize("labels", [{ZONE: "east__west"}, {next(iter(ZONE_LABELS)): "east"}, {}], ids=str)
def test_a_volume_is_reached_from_the_nodes_that_reach_it_one_by_one(labels: dict[str, str]) -> None:
    of_disks = VolumeNodeAffinity(
        required=node_terms(NodeSelectorTerm(match_expressions=(expression("disk", "In", "ssd", "hdd"),)))
    )
    for affinity in (None, of_disks):
        made = Snapshot(
            nodes=LABELLED,
            pods=(pod("web", node="a", volumes=(claimed(),)),),
            persistent_volume_claims=(claim(volume="pv"),),
            persistent_volumes=(volume("pv", labels=labels, node_affinity=affinity),),
        )

        assert answers(made) == plain_answers(made)


def answers(snapshot: Snapshot) -> list[Refusal | None]:
    """What the shared answers say of every class on every node."""
    cluster = Cluster.from_snapshot(snapshot)
    fit = State(cluster).node_fit
    numbers = cluster.node_numbers.values()
    return [fit.refusal(one.index, number) for one in cluster.classes for number in numbers]


def plain_answers(snapshot: Snapshot) -> list[Refusal | None]:
    """The same, asked one by one."""
    cluster = Cluster.from_snapshot(snapshot)
    known = VolumeIndex(snapshot.persistent_volume_claims, snapshot.persistent_volumes)
    return [
        target_refusal(cluster, number) or _plain_answer(one, known, cluster.nodes[number])
        for one in cluster.classes
        for number in cluster.node_numbers.values()
    ]


def _plain_answer(one: PodClass, known: VolumeIndex, place: Node) -> Refusal | None:
    volumes = known.volumes_of(one)
    if isinstance(volumes, Refusal):
        return volumes
    return NodeTies(node_part(one.example.spec), volumes).refusal(place)


@holds_for(clusters(), deep=40)
def test_where_pods_may_go_is_what_is_said_of_each_node(snapshot: Snapshot) -> None:
    assert answers(snapshot) == plain_answers(snapshot)


# --- spread ---------------------------------------------------------------------------------------------------------


def counts_in(made: PodSpec, hard: Sequence[TopologySpreadConstraint], one: TopologySpreadConstraint, on: Node) -> str:
    """The domain in which a node counts for a constraint, "" if it does not."""
    if not {each.topology_key for each in hard} <= on.metadata.labels.keys():
        return ""
    if one.node_affinity_policy != "Ignore" and not matches_node_affinity(made, on):
        return ""
    if one.node_taints_policy == "Honor" and untolerated_taint(made.tolerations, on.taints) is not None:
        return ""
    return on.metadata.labels[one.topology_key]


def breaks_spread(cluster: Cluster, index: int, target: int) -> bool:
    """Whether a move breaks a spread constraint, by a look at every pod and node; every node may be tainted."""
    moved = cluster.pods[index]
    one = cluster.classes[moved.class_index]
    for constraint in one.hard_spreads:
        domains = [counts_in(one.example.spec, one.hard_spreads, constraint, on) for on in cluster.nodes]
        select = with_label_keys(constraint.label_selector, constraint.match_label_keys, one.labels, "In")
        counted = [
            (number, placed)
            for number, placed in enumerate(cluster.pods)
            if select is not None
            and not is_everything(select)
            and number != index
            and placed.presence is not PodPresence.LEAVING
            and placed.pod.metadata.namespace == one.namespace
            and matches_labels(select, placed.pod.metadata.labels)
        ]
        there = Counter(domains[placed.node] for _, placed in counted)
        tainted = constraint.node_taints_policy == "Honor"
        sure = Counter(
            domains[placed.node] for _, placed in counted if placed.presence is PodPresence.SETTLED and not tainted
        )
        if not domains[target]:
            return True
        all_domains = set(domains) - {""}
        sure_domains = 0 if tainted else len(all_domains)
        lowest = 0 if sure_domains < (constraint.min_domains or 1) else min(sure[domain] for domain in all_domains)
        if there[domains[target]] + matches_labels(select, one.labels) - lowest > constraint.max_skew:
            return True
    return False


@holds_for(clusters(), deep=40)
def test_spread_by_domain_is_spread_by_a_look_at_every_pod(snapshot: Snapshot) -> None:
    cluster = Cluster.from_snapshot(snapshot)
    counted = State(cluster).topology_spread
    for index, placed in enumerate(cluster.pods):
        if placed.presence is PodPresence.SETTLED:
            for target in cluster.node_numbers.values():
                refused = counted.refusal(placed.class_index, placed.node, target) is not None

                assert refused == breaks_spread(cluster, index, target), (placed.pod, target)


# --- links ----------------------------------------------------------------------------------------------------------


def linked(cluster: Cluster) -> Iterator[tuple[int, int]]:
    """All pairs of classes where one asks for the pods of the other."""
    reader = TermReader(cluster.snapshot.namespaces)
    for one in cluster.classes:
        spec = one.example.spec
        wanted = [resolve_term(term, one.namespace, one.labels) for term in spec.required_affinity]
        avoided = [resolve_term(term, one.namespace, one.labels) for term in spec.required_anti_affinity]
        for other in cluster.classes:
            for several in ([wanted] if wanted else []) + [[term] for term in avoided]:
                if all(reader.match(term, other.namespace, other.labels) is not Match.NO for term in several):
                    yield one.index, other.index
            for constraint in one.hard_spreads:
                chosen = with_label_keys(constraint.label_selector, constraint.match_label_keys, one.labels, "In")
                meant = chosen is not None and not is_everything(chosen) and other.namespace == one.namespace
                if meant and matches_labels(chosen, other.labels):
                    yield one.index, other.index


def groups(pairs: Iterable[tuple[int, int]]) -> set[frozenset[int]]:
    """What the pairs connect."""
    found: list[set[int]] = []
    for pair in pairs:
        touched = [one for one in found if one & {*pair}]
        found = [one for one in found if one not in touched] + [set(pair).union(*touched)]
    return {frozenset(one) for one in found}


@holds_for(clusters(), st.integers(1, 3), deep=40)
def test_links_connect_the_classes_that_ask_for_each_other(snapshot: Snapshot, step: int) -> None:
    cluster = Cluster.from_snapshot(snapshot)
    state = State(cluster)
    some = {one.index for one in cluster.classes if one.index % step == 0}
    among = [*state.pod_affinity.links.among(some), *state.topology_spread.links.among(some)]

    assert groups(among) == groups(pair for pair in linked(cluster) if some.issuperset(pair))


# --- classes --------------------------------------------------------------------------------------------------------


def are_alike(one: Pod, other: Pod) -> bool:
    """Whether every rule treats two pods alike, field by field."""
    a, b = one.spec, other.spec
    return all(
        (
            (one.metadata.namespace, one.controller) == (other.metadata.namespace, other.controller),
            one.metadata.labels == other.metadata.labels,
            needs(one) == needs(other),
            (a.affinity, a.node_selector, a.tolerations) == (b.affinity, b.node_selector, b.tolerations),
            (a.overhead, a.resources, a.priority) == (b.overhead, b.resources, b.priority),
            a.topology_spread_constraints == b.topology_spread_constraints,
            one.claim_names == other.claim_names,
            [(each.name, each.resources) for each in one.status.container_statuses]
            == [(each.name, each.resources) for each in other.status.container_statuses],
        )
    )


def needs(one: Pod) -> list[tuple[object, ...]]:
    several = (*one.spec.containers, *one.spec.init_containers)
    return [(each.resources.requests, each.ports, each.restart_policy) for each in several]


def resized(one: Pod, cpu: str) -> Pod:
    has = ContainerStatus(name="app", ready=True, resources=ResourceRequirements(requests={"cpu": cpu}))
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, container_statuses=(has,)))


def with_labels(one: Pod, **labels: str) -> Pod:
    changed = msgspec.structs.replace(one.metadata, labels={**one.metadata.labels, **labels})
    return msgspec.structs.replace(one, metadata=changed)


ODD = (
    lambda one: one,
    lambda one: resized(one, "2"),
    lambda one: resized(one, "3"),
    lambda one: with_labels(one, **{"apps.kubernetes.io/pod-index": "1"}),
    lambda one: msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, priority=7)),
)


@holds_for(clusters(), st.lists(st.sampled_from(ODD), min_size=1, max_size=4), deep=40)
def test_pods_are_of_one_class_just_where_they_are_alike(snapshot: Snapshot, odd: list[object]) -> None:
    drawn = [one for one in snapshot.pods if not one.belongs_to_node]
    made = [odd[index % len(odd)](one) for index, one in enumerate(drawn)]  # type: ignore[operator]
    book = PodClasses()
    numbers = [book.class_of(one) for one in made]
    for one, number in zip(made, numbers, strict=True):
        for other, its in zip(made, numbers, strict=True):
            assert (number == its) == are_alike(one, other), (one, other)


def daemon(on: str, *, bound: bool = True, **rest: object) -> Pod:
    """A DaemonSet's pod, which is tied to its node by name."""
    name = expression("metadata.name", "In", on)
    made_by = owner("DaemonSet", "agent")
    return pod(f"agent-{on}", node=on if bound else "", controller=made_by, affinity=tied(fields=(name,)), **rest)  # type: ignore[arg-type]


def mirror(on: str, cpu: str = "100m") -> Pod:
    marks = {"kubernetes.io/config.mirror": on}
    return pod(f"proxy-{on}", node=on, controller=owner("Node", on), annotations=marks, cpu=cpu)


def number_of_classes(*several: Pod) -> int:
    book = PodClasses()
    return len({book.class_of(one) for one in several})


def test_the_pods_of_a_daemon_set_are_one_class_on_whatever_node_each_is() -> None:
    assert number_of_classes(daemon("a"), daemon("b"), daemon("c")) == 1


def test_a_pod_of_a_daemon_set_that_differs_is_a_class_of_its_own() -> None:
    assert number_of_classes(daemon("a"), daemon("b", cpu="2"), daemon("c", labels={"app": "x"})) == 3


def test_a_pod_of_a_daemon_set_that_waits_is_asked_for_its_own_node() -> None:
    assert number_of_classes(daemon("a"), daemon("b"), daemon("c", bound=False), daemon("d", bound=False)) == 3


def test_mirror_pods_of_different_nodes_are_one_class_if_they_ask_for_as_much() -> None:
    assert number_of_classes(mirror("a"), mirror("b"), mirror("c", cpu="1")) == 2


def test_what_a_daemon_set_keeps_away_counts_on_each_of_its_nodes() -> None:
    avoided = spread(select=selector(app="agent"))
    pods = (
        *(daemon(on, labels={"app": "agent"}, cpu="2") for on in "abc"),
        pod("web", node="a", labels={"app": "agent"}, spread=(avoided,)),
    )
    nodes = tuple(node(name, labels={ZONE: zone}) for name, zone in zip("abc", ("x", "y", "y"), strict=True))
    cluster = Cluster.from_snapshot(Snapshot(nodes=nodes, pods=pods))

    assert [cluster.taken[number][0] for number in cluster.node_numbers.values()] == [2100, 2000, 2000]
    assert [breaks_spread(cluster, 3, number) for number in (1, 2)] == [True, True]
    counted = State(cluster).topology_spread
    web = cluster.pods[3]
    assert all(counted.refusal(web.class_index, web.node, number) for number in list(cluster.node_numbers.values())[1:])


# --- budgets --------------------------------------------------------------------------------------------------------


@holds_for(clusters(), deep=40)
def test_the_budgets_of_a_pod_are_those_whose_selector_selects_it_in_order(snapshot: Snapshot) -> None:
    made = (
        *snapshot.disruption_budgets,
        disruption_budget("both", match_labels={"app": "web", "version": "1"}),
        disruption_budget("everything"),
        disruption_budget("same", match_labels={"app": "web"}),
        disruption_budget("again", match_labels={"version": "1", "app": "web"}),
    )
    known = DisruptionBudgets(made)
    for one in snapshot.pods:
        space, labels = one.metadata.namespace, one.metadata.labels
        plain = [b for b in made if b.metadata.namespace == space and matches_labels(b.spec.selector, labels)]

        assert [budget_key(found) for found in known.covering(one)] == [budget_key(found) for found in plain]
