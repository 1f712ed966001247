"""The scene of `berth demo --scene lent`: a node that Yarn lends by the hour."""

from collections import Counter
from typing import Any, Final

from berth_core import (
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    LENT_NODES,
    POLICY_API_VERSION,
    POLICY_KIND,
    REVOCABLE_ZONE_LABEL,
    Pod,
    RevocableZone,
    RunMode,
    ZoneState,
)
from berth_descheduler.capabilities.demo.cli.stage import Scene, Stage, build_pod
from berth_kube import DEPLOYMENTS, DESCHEDULER_POLICIES, NODES, PODS, REVOCABLE_ZONES

_YARN: Final = "yarn"
_NIGHT: Final = "night"
_QUARTER: Final = {"cpu": "4", "memory": "16Gi"}
_HALF: Final = {"cpu": "8", "memory": "32Gi"}
_MOVED_SECONDS: Final = 180.0
"""For pods that are moved: a run comes every ten seconds, and one that a move fails in is not the last."""


def play_lent(stage: Stage) -> str:
    """A lent node opens to preemptable pods, these make room for others by it, and it is empty after it has closed."""
    usual, lent = (f"node-{node_number:03d}" for node_number in range(LENT.nodes))
    stage.make_namespace(_NIGHT)
    _lend(stage, lent)
    _deploy_preemptable(stage, "batch", 2)
    stage.create_pods(_NIGHT, ["api-1", "api-2"], _QUARTER)
    stage.wait(f"{usual} is full", lambda: _nodes_of(stage, "batch", "api") == {usual: 4})
    _deploy_preemptable(stage, "nightly", 1)
    stage.create_pods(_NIGHT, ["urgent"], _HALF)
    stage.wait("nightly and urgent fit nowhere", lambda: _refused(stage, "nightly") and _refused(stage, "urgent"))
    stage.say(f"{lent} is lent by Yarn, and closed: it is empty while nightly, which is preemptable, and urgent wait")

    _switch(stage, ZoneState.OPEN, suspend=False)
    stage.wait("nightly runs on the lent node", lambda: _nodes_of(stage, "nightly") == {lent: 1})
    stage.require("urgent waits", not stage.running(_NIGHT, "urgent"))
    stage.say(f"the zone opens: nightly runs on {lent}, and urgent waits on, as it is not preemptable")
    uids_before = {pod.metadata.uid for pod in stage.running(_NIGHT, "api")}
    stage.client.create(DESCHEDULER_POLICIES, _policy_for_lent_nodes())
    stage.wait("urgent runs", lambda: _nodes_of(stage, "urgent") == {usual: 1}, seconds=_MOVED_SECONDS)
    stage.wait("batch runs again", lambda: _nodes_of(stage, "batch") == {lent: 2}, seconds=_MOVED_SECONDS)
    stage.require("no other pod was touched", uids_before == {pod.metadata.uid for pod in stage.running(_NIGHT, "api")})
    stage.say(f"a policy with LentNodes moves batch from {usual} to {lent}, and urgent runs in its place")

    stage.end_pods(_NIGHT, ["api-1", "api-2", "urgent"])
    _switch(stage, ZoneState.SUSPENDED, suspend=True)
    stage.say("the work of the others is done, and the zone closes")
    expected_counts = {usual: 3}
    stage.wait("all have left", lambda: _nodes_of(stage, "batch", "nightly") == expected_counts, seconds=_MOVED_SECONDS)
    stage.wait("the zone says that its node is empty", lambda: _zone(stage).status.pods == 0)
    return (
        f"{lent} took preemptable pods only while it was open: one that waited, and two that made room for another pod "
        f"on {usual}; once it was closed, all three moved back, and Yarn has it for itself."
    )


def _lend(stage: Stage, node: str) -> None:
    """Put a node into a zone that is closed, and wait for its fence."""
    stage.client.merge_patch(NODES, node, {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: _YARN}}})
    spec = {"windows": ["0:00-24:00"], "suspend": True}
    manifest_head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "metadata": {"name": _YARN}}
    stage.client.create(REVOCABLE_ZONES, {**manifest_head, "spec": spec})
    _wait_for_zone(stage, ZoneState.SUSPENDED)


def _switch(stage: Stage, want: ZoneState, *, suspend: bool) -> None:
    stage.client.merge_patch(REVOCABLE_ZONES, _YARN, {"spec": {"suspend": suspend}})
    _wait_for_zone(stage, want)


def _wait_for_zone(stage: Stage, want: ZoneState) -> None:
    """Wait until the zone is in a state, and its node has the fence of that."""

    def is_reached() -> bool:
        status = _zone(stage).status
        return (
            status.state == want
            and {condition.type: condition.status for condition in status.conditions}.get("Fenced") == "True"
        )

    stage.wait(f"the zone is {want} and fenced", is_reached)


def _zone(stage: Stage) -> RevocableZone:
    return RevocableZone.read(stage.client.get(REVOCABLE_ZONES, _YARN))


def _deploy_preemptable(stage: Stage, name: str, replicas: int) -> None:
    """Create a Deployment of preemptable pods that may all be missing at once."""
    pod = build_pod(name, _QUARTER, {JDB_MAX_UNAVAILABLE_ANNOTATION: "100%"}, restartPolicy="Always")
    labels = {"app": name, "volcano.sh/preemptable": "true"}
    template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    stage.client.create(DEPLOYMENTS, body, namespace=_NIGHT)


def _nodes_of(stage: Stage, *prefixes: str) -> dict[str, int]:
    """Return how many pods with these names run and stay on each node."""
    running_pods = (pod for prefix in prefixes for pod in stage.running(_NIGHT, prefix))
    return dict(Counter(pod.spec.node_name for pod in running_pods if not pod.is_terminating))


def _refused(stage: Stage, prefix: str) -> bool:
    """Return whether a scheduler has refused all pods whose names begin so."""
    pods = stage.client.list(PODS, namespace=_NIGHT, type=Pod).items
    statuses = [pod.condition("PodScheduled") for pod in pods if pod.metadata.name.startswith(prefix)]
    return bool(statuses) and set(statuses) == {"False"}


def _policy_for_lent_nodes() -> dict[str, Any]:
    enabled = {"enabled": [LENT_NODES]}
    profile = {"name": "default", "plugins": {"balance": enabled, "deschedule": enabled}}
    limits = {"maxMoves": 50, "podCoolDown": "0s"}
    spec = {"trigger": {"interval": "10s"}, "mode": RunMode.AUTO.value, "limits": limits, "profiles": [profile]}
    return {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": "lent-nodes"}, "spec": spec}


LENT: Final = Scene("a node that Yarn lends by the hour: a RevocableZone and the plugin LentNodes", 2, play_lent)
