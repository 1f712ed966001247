"""Pods go to nodes of a platform on which their images are known to run."""

from typing import Any

import pytest

from berth_core import Affinity, LabelSelectorRequirement, Node, NodeAffinity, NodeSelectorTerm, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.planner.simulation.cluster import Cluster
from builders import bare_pod, node, owner, pod
from planner.clusters import consolidating, expression, minimizing, node_terms, settings, tied

OS, ARCH, BUILD = "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/windows-build"
AMD, ARM = {OS: "linux", ARCH: "amd64"}, {OS: "linux", ARCH: "arm64"}
WINDOWS = {OS: "windows", ARCH: "amd64", BUILD: "10.0.20348"}


def web(name: str = "web", on: str = "low", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, node=on, cpu="1", memory=None, **rest)


def moves(low: dict[str, str], high: dict[str, str], *pods: Pod, how: PlannerSettings | None = None) -> bool:
    """Whether a pod leaves `low` for `high`, which is well used; each node with its labels."""
    nodes = (node("low", cpu="8", labels=low), node("high", cpu="8", labels=high))
    base = bare_pod("base", node="high", cpu="6", memory=None)
    made = plan(Snapshot(nodes=nodes, pods=(*(pods or (web(),)), base)), how or consolidating())
    if not made.moves and not pods:
        (refused,) = (refused for refused in made.refused if refused.name == "web")
        assert refused.constraint is Reason.OTHER_PLATFORM
    return bool(made.moves)


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        pytest.param(AMD, AMD, True, id="alike"),
        pytest.param(AMD, ARM, False, id="another architecture"),
        pytest.param(ARM, AMD, False, id="another architecture, the other way"),
        pytest.param(AMD, WINDOWS, False, id="another system"),
        pytest.param(WINDOWS, WINDOWS, True, id="Windows"),
        pytest.param(WINDOWS, {**WINDOWS, BUILD: "10.0.26100"}, False, id="another build of Windows"),
        pytest.param(AMD, {**AMD, BUILD: "10.0.20348"}, True, id="a build of what is not Windows"),
        pytest.param({}, {}, True, id="not known is like not known"),
        pytest.param(AMD, {OS: "linux"}, False, id="not known is not like known"),
        pytest.param({}, AMD, False, id="known is not like not known"),
        pytest.param(
            AMD, {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"}, True, id="older labels"
        ),
    ],
)
def test_a_pod_goes_to_a_node_like_its_own(low: dict[str, str], high: dict[str, str], *, want: bool) -> None:
    assert moves(low, high) is want


def chosen(*expressions: LabelSelectorRequirement) -> Affinity:
    return tied(*expressions)


def either(*terms: NodeSelectorTerm) -> Affinity:
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=node_terms(*terms)))


BOTH = expression(ARCH, "In", "amd64", "arm64")


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"affinity": chosen(BOTH)}, True, id="architectures are chosen"),
        pytest.param({"affinity": chosen(expression(OS, "In", "linux"))}, False, id="only the system is"),
        pytest.param({"node_selector": {OS: "linux"}}, False, id="only the system, by a selector"),
        pytest.param({"affinity": chosen(expression(ARCH, "NotIn", "s390x"))}, False, id="one is excluded"),
        pytest.param({"affinity": chosen(expression(ARCH, "Exists"))}, False, id="any is as good as none"),
        pytest.param(
            {
                "affinity": either(
                    NodeSelectorTerm(match_expressions=(BOTH,)), NodeSelectorTerm(match_expressions=(BOTH,))
                )
            },
            True,
            id="in each term",
        ),
        pytest.param(
            {
                "affinity": either(
                    NodeSelectorTerm(match_expressions=(BOTH,)),
                    NodeSelectorTerm(match_expressions=(expression(OS, "In", "linux"),)),
                )
            },
            False,
            id="in one term of two",
        ),
        pytest.param({"node_selector": {ARCH: "amd64"}}, False, id="its own is chosen"),
    ],
)
def test_what_a_pod_selects_itself_counts_instead(spec: dict[str, Any], *, want: bool) -> None:
    assert moves(AMD, ARM, web(**spec)) is want


def test_a_pod_that_chooses_systems_still_keeps_to_its_architecture() -> None:
    systems = chosen(expression(OS, "In", "linux", "windows"))

    assert moves(AMD, {OS: "windows", ARCH: "amd64"}, web(affinity=systems))
    assert not moves(AMD, {OS: "windows", ARCH: "arm64"}, web(affinity=systems))


@pytest.mark.parametrize(
    ("sibling", "want"),
    [
        pytest.param({}, True, id="Ready there"),
        pytest.param({"ready": False}, False, id="not Ready there: its image may be for another platform"),
        pytest.param({"phase": "Pending", "ready": False}, False, id="not running"),
        pytest.param({"deleted": "2026-11-21T12:00:00Z"}, False, id="on its way out"),
        pytest.param({"controller": owner(name="other")}, False, id="of another controller"),
        pytest.param({"namespace": "shop"}, False, id="of another namespace"),
    ],
)
def test_a_platform_on_which_others_of_the_controller_are_ready_is_known(
    sibling: dict[str, Any], *, want: bool
) -> None:
    other = pod("web-1", **{"node": "high", "cpu": "1", "memory": None, **sibling})

    assert moves(AMD, ARM, web(), other) is want


WAYS = {
    "threshold": settings(low=60, defragment=60, protection=100),
    "consolidate by the solver": consolidating(exact=True),
    "less fragmentation": minimizing(),
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_no_strategy_moves_a_pod_to_another_platform(how: PlannerSettings) -> None:
    assert not moves(AMD, ARM, web(), how=how)


def labelled(*labels: dict[str, str]) -> tuple[Node, ...]:
    return tuple(node(f"node-{number}", labels=own_labels) for number, own_labels in enumerate(labels))


def test_nodes_that_are_alike_cost_no_class_of_pods() -> None:
    pods = tuple(web(f"web-{number}", f"node-{number % 2}") for number in range(6))

    def classes(*labels: dict[str, str]) -> int:
        return len(Cluster.from_snapshot(Snapshot(nodes=labelled(*labels), pods=pods)).classes)

    assert classes(AMD, AMD) == classes({}, {}) == 1
    assert classes(AMD, ARM) == 1, "all of them may go where one of them is Ready"
