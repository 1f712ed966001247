"""`berth drain` on a real control plane: refused, killed half-way and made again, beside pods that want every place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from berth_core.migration_plans import MoveState
from berth_kube.resources import DAEMON_SETS, DEPLOYMENTS, PDBS, PODS
from berth_sandbox.bootstrap import DESCHEDULER, request_token
from berth_sandbox.invariants import Invariant
from berth_sandbox.ports import free_port
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster.test_surge_moves import deploy_singles, moves, released, serve
from cluster_objects import build_deployment, make_namespace, overbooked_nodes, pod_template, require_rest
from descheduling_stage import AT_ONCE, SLOWLY, Scene, scene_name, set_pace, set_up
from ready_endpoints import ready_endpoints, watched_endpoints
from service_processes import OperatorProcess, script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

OLD: Final = 3
NEW: Final = 7
APPS: Final = tuple(f"app-{number}" for number in range(NEW))
PODS_OF_AN_APP: Final = 2
"""One at a time may go, and each new node has room for two pods of an app and for nothing else."""
HUNGRY: Final = 10
HELD: Final = {MoveState.RESERVED, MoveState.EVICTED, MoveState.LANDED}


class Drained(Scene):
    """Three old nodes with pods of Deployments, and seven that are nearly full."""

    def set_up(self, **_: Any) -> None:  # noqa: ANN401 - of the scene that it stands for
        make_namespace(self.client, self.namespace)
        shape = NodeShape(cpu="8", memory="64Gi", labels={"tier": "new"})
        self.high = self.sandbox.add_nodes(NEW, shape, prefix=f"{self.namespace}-new-")
        self._deploy_all([self.paced(body, AT_ONCE) for body in self._base()])
        self.cordon(*self.high)
        self.low = self.sandbox.add_nodes(OLD, NodeShape(cpu="8", memory="64Gi"), prefix=f"{self.namespace}-old-")
        self._let_the_scheduler_hear()
        apps = [build_deployment(name, replicas=PODS_OF_AN_APP, cpu="1") for name in APPS]
        self._deploy_all([self.paced(body) for body in apps])
        self.client.create(DAEMON_SETS, _daemon_set(), namespace=self.namespace)
        for name in APPS:
            self.client.create(PDBS, _budget(name), namespace=self.namespace)
        self.create_pod("alone", cpu="100m", nodeName=self.low[0])
        self.cordon(*self.high, closed=False)
        self.cordon(self.low[2])
        nodes = OLD + NEW
        eventually("each node has a pod of the DaemonSet", lambda: self._ready("logs") == nodes, seconds=90)
        eventually("the pod alone runs", lambda: self._ready("alone") == 1, seconds=90)
        eventually("each budget allows one pod to go", lambda: self._allowed() == [1] * len(APPS), seconds=90)

    def _base(self) -> list[dict[str, Any]]:
        """Return Deployments of a pod each that fill the new nodes but for two pods of an app and a little."""
        names = zip((f"base-{number}" for number in range(NEW)), self.high, strict=True)
        return [
            build_deployment(name, replicas=1, cpu="5600m", nodeSelector={"kubernetes.io/hostname": node})
            for name, node in names
        ]

    def _deploy_all(self, bodies: list[dict[str, Any]]) -> None:
        for body in bodies:
            self.client.create(DEPLOYMENTS, body, namespace=self.namespace)
        for body in bodies:
            name, wanted = body["metadata"]["name"], body["spec"]["replicas"]
            eventually(f"{name} runs", lambda name=name, wanted=wanted: self._ready(name) == wanted, seconds=90)

    def _ready(self, app: str) -> int:
        return sum(pod.is_ready for pod in self.pods(label_selector=f"app={app}"))

    def _allowed(self) -> list[int]:
        found = self.client.list(PDBS, namespace=self.namespace).items
        return [one.get("status", {}).get("disruptionsAllowed", 0) for one in found]

    def clear(self) -> None:
        """Take away what makes its pods anew first."""
        self.client.delete(DAEMON_SETS, "logs", namespace=self.namespace, propagation="Background")
        super().clear()

    # --- what is there ------------------------------------------------------------------------------------------------

    def closed(self) -> list[str]:
        return [node.metadata.name for node in self.nodes() if node.spec.unschedulable]

    def apps_on(self, nodes: tuple[str, ...]) -> int:
        found = (pod for pod in self.pods() if pod.metadata.labels.get("app") in APPS and not pod.is_terminating)
        return sum(pod.spec.node_name in nodes for pod in found)

    def daemons_on(self, nodes: tuple[str, ...]) -> int:
        return sum(pod.spec.node_name in nodes for pod in self.pods(label_selector="app=logs"))

    def every_place_is_held(self) -> bool:
        """Return whether each pod has a move that holds its place, or has brought it there."""
        return sum(state in HELD for state in self.states()) >= len(APPS) * PODS_OF_AN_APP

    # --- what happens -------------------------------------------------------------------------------------------------

    def feed_the_hungry(self) -> None:
        """Have pods of another scheduler that would fit wherever a pod of an app is to go."""
        body = build_deployment("hungry", replicas=HUNGRY, cpu="1", schedulerName="second-scheduler")
        self.client.create(DEPLOYMENTS, body, namespace=self.namespace)


def _daemon_set() -> dict[str, Any]:
    labels = {"app": "logs"}
    template = pod_template(labels, cpu="10m")
    set_pace(template, AT_ONCE)
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "logs"}, "spec": spec}


def _budget(app: str) -> dict[str, Any]:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}


@pytest.fixture
def scene(paced_scene: Scene) -> Scene:
    """Yield one whose pods take seconds to start and to end."""
    return paced_scene


@pytest.fixture
def drained(
    paced_sandbox: Sandbox, paced_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Drained]:
    assert paced_operator.exit_code is None
    with paced_sandbox.connect() as client:
        scene = Drained(paced_sandbox, client, tmp_path, scene_name(request))
        scene.pace = {**SLOWLY, "only-on": f"{scene.namespace}-new-"}
        with set_up(scene) as made:
            yield made


def test_a_drain_is_refused_whole_and_one_that_was_killed_is_brought_to_its_end(drained: Drained) -> None:
    nodes, total = drained.low, len(APPS) * PODS_OF_AN_APP

    refused = drained.start_drain(*nodes, "--uncordon-on-failure")
    assert refused.wait() == 1
    said = refused.outcome
    assert [(one["pod"], one["reason"]) for one in said["plan"]["refused"]] == [("alone", "NoController")]
    assert (said["runs"][-1]["verdict"], drained.plans()) == ("PodsStay", ())
    assert drained.apps_on(nodes) == total
    assert drained.closed() == [nodes[2]], "it was cordoned before, and stays so"

    drained.client.delete(PODS, "alone", namespace=drained.namespace)
    eventually("the pod alone is gone", lambda: not drained.pods(label_selector="app=alone"), seconds=60)
    first = drained.start_drain(*nodes)
    drained.wait_for("every place is held", drained.every_place_is_held)
    drained.feed_the_hungry()
    drained.wait_for("some pods have landed", lambda: drained.states().count(MoveState.LANDED) >= PODS_OF_AN_APP)
    first.kill()

    # An eviction that is cut off half-way counts against its budget for two minutes.
    second = drained.start_drain(*nodes, "--evict-timeout=5m")
    assert second.wait(400) == 0, second.tail(100)

    assert (drained.apps_on(nodes), drained.apps_on(drained.high)) == (0, total)
    assert drained.daemons_on(nodes) == OLD
    assert set(drained.closed()) == set(nodes)
    moves = [pair for plan in drained.plans() for pair in zip(plan.spec.moves, plan.status.moves, strict=True)]
    landed = [(move, status) for move, status in moves if status.state is MoveState.LANDED]
    assert (len(landed), len(drained.plans())) == (total, 1)
    assert [status.node for _, status in landed] == [move.target for move, _ in landed]
    assert MoveState.ELSEWHERE not in drained.states()
    assert not [pod.spec.node_name for pod in drained.pods(label_selector="app=hungry") if pod.spec.node_name]
    assert overbooked_nodes(drained.client) == []

    third = drained.start_drain(*nodes)
    assert third.wait() == 0
    assert third.outcome["runs"][-1]["verdict"] == "NothingToMove"
    drained.remove("hungry")
    require_rest(drained.client, Invariant.PRIORITY_CLASS_LEFT)


def test_single_pods_under_budgets_that_allow_nothing_leave_without_a_gap(scene: Scene) -> None:
    wanted = {"one": 1, "two": 1, "three": 1}
    deploy_singles(scene, *wanted)
    for name in wanted:
        serve(scene, name)
    scene.wait_for("all endpoints are ready", lambda: ready_endpoints(scene.client, scene.namespace) == wanted)

    with watched_endpoints(scene.client, scene.namespace) as endpoints:
        drained = scene.start_drain(*scene.low)
        assert drained.wait() == 0, drained.tail(100)

    assert endpoints.fewest == wanted
    assert {name: (one.state, one.method) for name, one in moves(scene).items()} == dict.fromkeys(
        wanted, ("Landed", "Surge")
    )
    assert [scene.pods_on(node) for node in scene.low] == [[], []]
    assert released(scene) == []
    scene.require_peace(pods=len(scene.high) + len(wanted))


@pytest.mark.timeout(600)
def test_a_pod_that_needs_longer_than_two_minutes_is_drained_without_a_gap(scene: Scene) -> None:
    """Nothing but its Deployment, which gives it ten minutes, says how long it may take."""
    deploy_singles(scene)
    pace = {**SLOWLY, "ready-after-seconds": "140", "only-on": f"{scene.namespace}-high-"}
    scene.cordon(*scene.high)
    scene.deploy("slow", replicas=1, cpu="1", pace=pace)
    scene.cordon(*scene.high, closed=False)
    serve(scene, "slow")
    scene.wait_for("its endpoint is ready", lambda: ready_endpoints(scene.client, scene.namespace) == {"slow": 1})

    with watched_endpoints(scene.client, scene.namespace) as endpoints:
        drained = scene.start_drain(*scene.low)
        assert drained.wait() == 0, drained.tail(100)

    assert endpoints.fewest == {"slow": 1}
    assert [(move.state, move.method) for move in moves(scene).values()] == [("Landed", "Surge")]


def test_a_drain_goes_on_when_a_budget_allows_what_it_did_not(scene: Scene) -> None:
    deploy_singles(scene, "free", "kept")
    scene.client.merge_patch(
        DEPLOYMENTS,
        "kept",
        {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}},
        namespace=scene.namespace,
    )
    serve(scene, "kept")
    scene.wait_for("the budget is counted", lambda: scene.client.get(PDBS, "kept", namespace=scene.namespace)["status"])
    drained = scene.start_drain(*scene.low, "--skip-refused")
    scene.wait_for("the other pod has landed", lambda: MoveState.LANDED in scene.states())
    budget = {"spec": {"minAvailable": "0%"}}
    scene.client.merge_patch(PDBS, "kept", budget, namespace=scene.namespace)

    assert drained.wait() == 0, drained.tail(100)
    assert {name: move.state for name, move in moves(scene).items()} == {"free": "Landed", "kept": "Landed"}
    assert [scene.pods_on(node) for node in scene.low] == [[], []]


class Caller:
    """Who may drain, before a service that answers over HTTP."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._port = free_port()
        account = scene.sandbox.service_account_kubeconfig("berth-descheduler")
        command = [
            *(script("berth-descheduler"), f"--kubeconfig={account}", "--health-address=127.0.0.1:0"),
            *(f"--rest-address=127.0.0.1:{self._port}", "--lease-seconds=6", "--fragmentation-interval=none"),
        ]
        self.service = ServiceProcess(command, scene.folder / f"service-{self._port}.log")
        self._token = request_token(scene.client, DESCHEDULER)

    def ask(self, method: str, path: str, **rest: Any) -> requests.Response:  # noqa: ANN401 - what requests takes
        with requests.Session() as session:
            session.trust_env = False
            headers = {"Authorization": f"Bearer {self._token}"}
            url = f"http://127.0.0.1:{self._port}{path}"
            return session.request(method, url, headers=headers, timeout=120, **rest)

    def is_answered(self) -> bool:
        self.service.require_running()
        try:
            return self.ask("GET", "/v1/plans").ok
        except requests.exceptions.ConnectionError:
            return False

    def phase(self, path: str) -> str:
        answer = self.ask("GET", path)
        return str(answer.json()["phase"]) if answer.ok else ""


def test_a_drain_over_http_goes_on_after_the_service_was_killed(scene: Scene) -> None:
    """The descheduler's own account has just the rights that a caller needs: it may make plans, and patch nodes."""
    names = ("one", "two")
    deploy_singles(scene, *names)
    body = {"nodes": list(scene.low)}
    first = Caller(scene)
    with first.service:
        scene.wait_for("the service answers", first.is_answered)
        refused = first.ask("POST", "/v1/drains", json=body)
        assert (refused.status_code, refused.json()["detail"]) == (
            *(409, f"not cordoned: run kubectl cordon {' '.join(scene.low)}"),
        )
        scene.cordon(*scene.low)
        asked = first.ask("POST", "/v1/drains", json=body)
        assert asked.status_code == 202, asked.text
        path = asked.headers["Location"]
        scene.wait_for("a place is held", scene.has_begun)
        first.service.kill()

    second = Caller(scene)
    with second.service:
        scene.wait_for("the service answers again", second.is_answered)
        scene.wait_for("the drain is over", lambda: second.phase(path) == "Succeeded")

    assert {name: (one.state, one.method) for name, one in moves(scene).items()} == dict.fromkeys(
        names, ("Landed", "Surge")
    )
    scene.wait_until_emptied()
    assert set(scene.low) == {node.metadata.name for node in scene.nodes() if node.spec.unschedulable}
    scene.require_peace(pods=len(scene.high) + len(names))
