"""What a move changes for those after it: it is counted where it went, and not where it was."""

from collections.abc import Sequence

import msgspec

from berth_core import Pod, Taint
from berth_core.snapshot import Snapshot
from berth_core.storage import PersistentVolumeClaim
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation.cluster import Cluster
from berth_descheduler.planner.simulation.state import State
from builders import claim, node, owner, pod, volume
from planner.clusters import HOSTNAME, ZONE, apart, claimed, company, refusal_of, selector, settings, spread, term

WEB = {"app": "web"}


def of(name: str, on: str, **rest: object) -> Pod:
    return pod(name, **{"node": on, "controller": owner(name=name), **rest})  # type: ignore[arg-type]


def after(snapshot: Snapshot, moves: Sequence[tuple[str, str]], asked: tuple[str, str]) -> Reason | None:
    """Why a pod may not go to a node after some moves."""
    cluster = Cluster.from_snapshot(snapshot)
    state = State(cluster, ())
    for name, target in moves:
        state.move(cluster.pod_numbers["default", name], cluster.node_numbers[target])
    name, target = asked
    refusal = state.refusal(cluster.pod_numbers["default", name], cluster.node_numbers[target])
    assert back_as_it_was(state, cluster)
    return refusal.reason if refusal else None


def back_as_it_was(state: State, cluster: Cluster) -> bool:
    state.undo_to(0)
    fresh = State(cluster, ())
    return (state.free, state.node_of) == (fresh.free, fresh.node_of)


def test_a_shunned_pod_that_moved_is_shunned_where_it_went_only() -> None:
    shy = of("shy", "a", affinity=apart(term(select=selector(app="web"))))
    snapshot = Snapshot(nodes=tuple(node(n) for n in "abc"), pods=(shy, of("web", "b", labels=WEB)))

    assert after(snapshot, [], ("shy", "b")) is Reason.POD_ANTI_AFFINITY
    assert after(snapshot, [("web", "c")], ("shy", "b")) is None
    assert after(snapshot, [("web", "c")], ("shy", "c")) is Reason.POD_ANTI_AFFINITY


def test_a_pod_that_shuns_others_does_so_where_it_went_only() -> None:
    shy = of("shy", "b", affinity=apart(term(select=selector(app="web"))))
    snapshot = Snapshot(nodes=tuple(node(n) for n in "abc"), pods=(shy, of("web", "a", labels=WEB)))

    assert after(snapshot, [], ("web", "b")) is Reason.OTHERS_ANTI_AFFINITY
    assert after(snapshot, [("shy", "c")], ("web", "b")) is None
    assert after(snapshot, [("shy", "c")], ("web", "c")) is Reason.OTHERS_ANTI_AFFINITY


def test_company_that_moved_is_company_where_it_went_only() -> None:
    friend = of("friend", "b", labels=WEB)
    follower = of("follower", "a", affinity=company(term(select=selector(app="web"))))
    snapshot = Snapshot(nodes=tuple(node(n) for n in "abc"), pods=(friend, follower))

    assert after(snapshot, [], ("follower", "b")) is None
    assert after(snapshot, [("friend", "c")], ("follower", "b")) is Reason.POD_AFFINITY
    assert after(snapshot, [("friend", "c")], ("follower", "c")) is None


def test_a_pod_that_moved_counts_for_the_spread_where_it_went_only() -> None:
    even = {"labels": WEB, "spread": (spread(ZONE),)}
    pods = (of("one", "a", **even), of("two", "b", **even), of("three", "b2", **even))
    nodes = tuple(node(n, labels={ZONE: z}) for n, z in (("a", "east"), ("b", "west"), ("b2", "west"), ("c", "north")))
    snapshot = Snapshot(nodes=nodes, pods=pods)

    assert after(snapshot, [], ("two", "a")) is Reason.TOPOLOGY_SPREAD
    assert after(snapshot, [("one", "c")], ("two", "a")) is None
    assert after(snapshot, [("one", "c")], ("two", "c")) is Reason.TOPOLOGY_SPREAD
    assert after(snapshot, [("two", "c"), ("three", "a")], ("one", "b")) is None


def test_a_port_is_free_where_its_pod_was_and_taken_where_it_went() -> None:
    pods = (of("one", "a", host_ports=(80,)), of("two", "b", host_ports=(80,)))
    snapshot = Snapshot(nodes=tuple(node(n) for n in "abc"), pods=pods)

    assert after(snapshot, [], ("two", "a")) is Reason.HOST_PORT
    assert after(snapshot, [("one", "c")], ("two", "a")) is None
    assert after(snapshot, [("one", "c")], ("two", "c")) is Reason.HOST_PORT


def test_tainted_nodes_are_no_lowest_where_taints_are_honored() -> None:
    nodes = (
        node("a", labels={ZONE: "east"}),
        node("b", labels={ZONE: "west"}),
        node("c", labels={ZONE: "north"}, taints=(Taint(key="dedicated", value="x", effect="NoSchedule"),)),
    )

    def snapshot(policy: str) -> Snapshot:
        even = spread(ZONE, node_taints_policy=policy)
        return Snapshot(
            nodes=nodes,
            pods=(
                *(of(f"w{i}", on, labels=WEB) for i, on in enumerate("abb")),
                of("p", "a", labels=WEB, spread=(even,)),
            ),
        )

    assert after(snapshot("Honor"), [("w1", "a")], ("p", "b")) is None
    assert after(snapshot(""), [("w1", "a")], ("p", "b")) is Reason.TOPOLOGY_SPREAD


def test_mismatched_label_keys_leave_the_own_version_out() -> None:
    mine = {"app": "web", "version": "1"}
    shy = of("shy", "a", labels=mine, affinity=apart(term(HOSTNAME, mismatch_label_keys=("version",))))
    nodes = (node("a"), node("b"))

    assert refusal_of(Snapshot(nodes=nodes, pods=(shy, of("same", "b", labels=mine))), "shy", "b") is None
    other = of("other", "b", labels={"app": "web", "version": "2"})
    assert refusal_of(Snapshot(nodes=nodes, pods=(shy, other)), "shy", "b") is Reason.POD_ANTI_AFFINITY


def test_a_claim_for_one_pod_at_a_time_keeps_its_pod() -> None:
    def alone(made: PersistentVolumeClaim) -> PersistentVolumeClaim:
        return msgspec.structs.replace(
            made, spec=msgspec.structs.replace(made.spec, access_modes=("ReadWriteOncePod",))
        )

    for made, want in ((claim(volume="pv"), None), (alone(claim(volume="pv")), Reason.UNKNOWN_VOLUME)):
        snapshot = Snapshot(
            nodes=(node("a"), node("b")),
            pods=(of("p", "a", volumes=(claimed(),)),),
            persistent_volume_claims=(made,),
            persistent_volumes=(volume("pv"),),
        )
        assert refusal_of(snapshot, "p", "b") is want
        refusals = Problem.from_snapshot(snapshot, settings()).pod_refusals
        assert [one.reason for one in refusals.values()] == ([want] if want else [])
