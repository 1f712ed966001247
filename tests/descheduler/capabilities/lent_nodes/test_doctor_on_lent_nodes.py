"""`berth doctor` says what keeps lent nodes from being used and emptied by the clock."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth_core import Node, Taint
from berth_core.policies import DeschedulerPolicy
from berth_descheduler.capabilities.lent_nodes.findings import find_zone_troubles
from berth_kube.client import connect
from berth_sandbox.invariants import ClusterState, Invariant
from builders import NOON_TEXT, node
from scripted_server import ScriptedServer, page

LATER: Final = "2026-11-21T16:00:00Z"


def zone_of(name: str = "rz1", *, state: str = "Open", pods: int = 2, nodes: int = 1, **said: str) -> dict[str, Any]:
    """A zone whose conditions have the reasons in `said`."""
    conditions = [
        {"type": type_, "status": "False", "reason": reason, "message": "as it says", "lastTransitionTime": NOON_TEXT}
        for type_, reason in said.items()
    ]
    status = {"state": state, "nodes": nodes, "pods": pods, "closesAt": LATER, "conditions": conditions}
    return {"metadata": {"name": name, "uid": name}, "spec": {"windows": ["1:00-4:00"]}, "status": status}


LENT_NODE: Final = node("lent", labels={"volcano.sh/revocable-zone": "rz1"})
EMPTYING: Final = {
    "mode": "Auto",
    "trigger": {"interval": "1m"},
    "profiles": [{"name": "p", "plugins": {"deschedule": {"enabled": ["LentNodes"]}}}],
}


def zone_troubles(
    tmp_path: Path,
    *zones: dict[str, Any],
    nodes: tuple[Node, ...] = (LENT_NODE,),
    daemon_sets: tuple[Any, ...] = (),
    policy: Mapping[str, Any] = EMPTYING,
    name: str = "p",
) -> list[tuple[Invariant, str]]:
    policies = [msgspec.convert({"metadata": {"name": name, "uid": "p"}, "spec": policy}, DeschedulerPolicy)]
    with ScriptedServer() as server:
        server.on("GET", "/apis/berth.volcano.sh/v1alpha1/revocablezones", page(*zones))
        server.on("GET", "/apis/apps/v1/daemonsets", page(*daemon_sets))
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            found = tuple(find_zone_troubles(client, ClusterState(nodes=nodes), policies))
    return [(one.invariant, one.target) for one in found]


ZONES: Final[Mapping[str, tuple[dict[str, Any], Invariant | None]]] = {
    "one without fault": (zone_of(), None),
    "one with a wrong field": (zone_of(Scheduled="Invalid"), Invariant.ZONE_INVALID),
    "one that is switched off": (zone_of(state="Suspended", Scheduled="Suspended"), None),
    "one that no node names": (zone_of(nodes=0, Fenced="NoNodes"), Invariant.ZONE_WITHOUT_NODES),
    "one without nodes that is switched off": (zone_of(state="Suspended", nodes=0, Fenced="NoNodes"), None),
    "one whose nodes lack fences": (zone_of(Fenced="WithoutFence"), Invariant.ZONE_UNFENCED),
    "one that will be late": (zone_of(EmptyInTime="TooLate"), Invariant.ZONE_LATE),
    "one that is late": (zone_of(state="Closed", EmptyInTime="LeftOver"), Invariant.ZONE_LATE),
}


@pytest.mark.parametrize(("zone", "want"), ZONES.values(), ids=ZONES)
def test_a_zone_that_does_not_lend_or_empty_its_nodes_is_told(
    tmp_path: Path, zone: dict[str, Any], want: Invariant | None
) -> None:
    assert zone_troubles(tmp_path, zone) == ([(want, "revocablezone rz1")] if want else [])


def test_a_cluster_without_zones_has_no_trouble_with_them(tmp_path: Path) -> None:
    with ScriptedServer() as server, connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
        assert not tuple(find_zone_troubles(client, ClusterState(nodes=(LENT_NODE,)), ()))


def test_a_node_whose_label_names_no_zone_is_told(tmp_path: Path) -> None:
    astray = node("astray", labels={"volcano.sh/revocable-zone": "rz2"})
    found = zone_troubles(tmp_path, zone_of(), nodes=(LENT_NODE, astray))
    assert found == [(Invariant.ZONE_UNKNOWN, "node astray")]


EMPTIED_BY: Final[Mapping[str, tuple[dict[str, Any], bool]]] = {
    "a policy that only shows plans": ({**EMPTYING, "mode": "Plan"}, False),
    "one that is switched off": ({**EMPTYING, "suspend": True}, False),
    "none with the plugin: the zone empties its nodes itself": ({"mode": "Auto", "profiles": [{"name": "p"}]}, True),
    "one that makes room with it": (
        {"mode": "Auto", "profiles": [{"name": "p", "plugins": {"balance": {"enabled": ["LentNodes"]}}}]},
        True,
    ),
    "one that runs on request only": ({**EMPTYING, "trigger": {}}, False),
    "one that runs more seldom than the zone counts on": ({**EMPTYING, "trigger": {"interval": "61s"}}, False),
    "one that runs more often": ({**EMPTYING, "trigger": {"interval": "30s"}}, True),
    "one with times of its own": ({**EMPTYING, "trigger": {"cron": "* * * * *"}}, True),
    "one that takes pods off": (EMPTYING, True),
}


@pytest.mark.parametrize(("policy", "does"), EMPTIED_BY.values(), ids=EMPTIED_BY)
def test_a_zone_whose_policy_does_not_empty_it_is_told(tmp_path: Path, policy: dict[str, Any], *, does: bool) -> None:
    found = zone_troubles(tmp_path, zone_of(), policy=policy)
    assert found == ([] if does else [(Invariant.ZONE_NOT_EMPTIED, "revocablezone rz1")])
    assert zone_troubles(tmp_path, zone_of(pods=0), policy=policy) == []
    always = zone_of()
    del always["status"]["closesAt"]
    assert zone_troubles(tmp_path, always, policy=policy) == [], "it never closes"


NAMED: Final[Mapping[str, tuple[str, dict[str, Any], bool]]] = {
    "one of the name of its own runs": ("revocablezone-rz1", {"mode": "Auto", "profiles": [{"name": "p"}]}, True),
    "one of that name that empties it": ("revocablezone-rz1", EMPTYING, False),
    "one of the name of another zone's": ("revocablezone-rz2", {"mode": "Auto", "profiles": [{"name": "p"}]}, False),
}


@pytest.mark.parametrize(("name", "policy", "is_told"), NAMED.values(), ids=NAMED)
def test_a_policy_that_takes_the_name_of_a_zones_own_runs_is_told(
    tmp_path: Path, name: str, policy: dict[str, Any], *, is_told: bool
) -> None:
    found = zone_troubles(tmp_path, zone_of(), policy=policy, name=name)
    assert found == ([(Invariant.ZONE_NOT_EMPTIED, "revocablezone rz1")] if is_told else [])


def daemon_set(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - a pod's spec
    return {"metadata": {"name": "agent", "namespace": "logs"}, "spec": {"template": {"spec": spec}}}


YARN: Final = Taint(key="yarn", value="true", effect="NoSchedule")
KEPT_OFF: Final[Mapping[str, tuple[dict[str, Any], Taint, bool]]] = {
    "one that lacks the toleration": (daemon_set(), YARN, True),
    "one that tolerates the taint": (daemon_set(tolerations=[{"key": "yarn", "operator": "Exists"}]), YARN, False),
    "one that selects other nodes": (daemon_set(nodeSelector={"gpu": "yes"}), YARN, False),
    "a taint that only advises": (daemon_set(), Taint(key="yarn", effect="PreferNoSchedule"), False),
    "a cordoned node": (daemon_set(), Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), False),
    "a taint of a plan": (daemon_set(), Taint(key="berth.volcano.sh/draining", effect="NoSchedule"), False),
}


@pytest.mark.parametrize(("daemons", "taint", "is_told"), KEPT_OFF.values(), ids=KEPT_OFF)
def test_a_daemon_set_that_taints_keep_off_lent_nodes_is_told(
    tmp_path: Path, daemons: dict[str, Any], taint: Taint, *, is_told: bool
) -> None:
    tainted = node("lent", labels={"volcano.sh/revocable-zone": "rz1"}, taints=(taint,))
    found = zone_troubles(tmp_path, zone_of(), nodes=(tainted,), daemon_sets=(daemons,))
    assert found == ([(Invariant.DAEMON_KEPT_OFF, "daemonset logs/agent")] if is_told else [])
    usual = node("usual", taints=(taint,))
    assert zone_troubles(tmp_path, zone_of(), nodes=(LENT_NODE, usual), daemon_sets=(daemons,)) == []
