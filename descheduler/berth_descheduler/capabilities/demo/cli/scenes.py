"""Short scenes for `berth demo --scene`: each shows one feature on the sandbox and checks what it has shown.

A scene is a function that plays on a `Stage` and returns the sentence of what was shown; it raises `SceneError` where
that is not true. To add one, write the function and name it in `SCENES`.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from berth_core import (
    DEFAULT_NAMESPACE,
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    LENT_NODES,
    POLICY_API_VERSION,
    POLICY_KIND,
    QUEUE_API_VERSION,
    QUEUE_GATE,
    QUEUE_KIND,
    REVOCABLE_ZONE_LABEL,
    STANDING_FENCE_LABEL,
    STARVING_JOB_LABEL,
    STARVING_JOBS,
    GatedQueue,
    PermanentError,
    Pod,
    QueueCondition,
    Reservation,
    ReservationPhase,
    ReservationWindow,
    RevocableZone,
    RunMode,
    SystemClock,
    WindowState,
    ZoneState,
    format_timestamp,
)
from berth_descheduler.capabilities.demo.cli.scenario import Narrator, running_services
from berth_kube import (
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    SERVICE_ACCOUNTS,
    KubeClient,
    NotFoundError,
    connect,
)
from berth_sandbox.sandbox import Sandbox

_TINY_CLUSTER: Final = ("slots=none", "share=none", "maxFencedNodes=100%")
"""Limits of the operator: its defaults are shares of clusters with many nodes."""
_POLL_SECONDS: Final = 0.2
_LONGEST_WAIT_SECONDS: Final = 180.0


class SceneError(PermanentError):
    """What a scene shows did not happen."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene; its cluster has this many nodes of 16 cpu and 64Gi."""

    about: str
    nodes: int
    play: "Callable[[Stage], str]"


@dataclass(frozen=True, slots=True)
class SceneResult:
    """What a scene has shown, or what did not happen."""

    scene: str
    shown: bool
    sentence: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Stage:
    """A sandbox on which both services run, and what scenes do there."""

    sandbox: Sandbox
    client: KubeClient
    say: Callable[[str], None]
    require_services: Callable[[], None]
    """Raises `ServiceError` if a service has ended."""

    def wait(self, claim: str, reached: Callable[[], object], *, seconds: float = _LONGEST_WAIT_SECONDS) -> float:
        """Wait until something is true, and return the seconds that took; raises `SceneError`."""
        started = time.monotonic()
        while not reached():
            self.require_services()
            if time.monotonic() - started > seconds:
                raise SceneError(f"not within {seconds:g} s: {claim}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    def require(self, claim: str, is_true: object) -> None:
        """Raise `SceneError` with a claim that is not true."""
        if not is_true:
            raise SceneError(f"not true: {claim}")

    def make_namespace(self, name: str) -> None:
        """Create a namespace in which pods can be made."""
        self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

        def has_account() -> bool:
            try:
                self.client.get(SERVICE_ACCOUNTS, "default", namespace=name)
            except NotFoundError:
                return False
            return True

        self.wait(f"pods can be made in {name}", has_account)

    def create_pods(
        self,
        namespace: str,
        names: Sequence[str],
        requests: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        **spec: Any,  # noqa: ANN401 - fields of a pod
    ) -> None:
        """Create pods without a controller that request the same."""
        for pod_name in names:
            self.client.create(PODS, _pod(pod_name, requests, annotations, **spec), namespace=namespace)

    def wait_for_gate(self, namespace: str) -> None:
        """Wait until the API server gates new pods, which it does a moment after a webhook was registered."""

        def is_gated() -> bool:
            created_pod = self.client.create(PODS, _pod("dry", _PART), namespace=namespace, dry_run=True, type=Pod)
            return any(gate.name == QUEUE_GATE for gate in created_pod.spec.scheduling_gates)

        self.wait(f"new pods in {namespace} are gated", is_gated)

    def wait_for_fence(self, node: str) -> None:
        """Wait until a fence stands on a node: a Reservation may wait for it a moment longer."""

        def stands() -> bool:
            fences = self.client.list(
                PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod
            ).items
            return any(fence.spec.node_name == node and not fence.is_terminating for fence in fences)

        self.wait(f"a fence stands on {node}", stands)

    def end_pods(self, namespace: str, names: Sequence[str]) -> None:
        """Let pods end, as if their work were done."""
        for pod_name in names:
            self.client.delete(PODS, pod_name, namespace=namespace, grace_seconds=0)

    def running(self, namespace: str, prefix: str) -> tuple[Pod, ...]:
        """Return the running pods whose names begin so."""
        pods = self.client.list(PODS, namespace=namespace, type=Pod).items
        return tuple(pod for pod in pods if pod.metadata.name.startswith(prefix) and pod.status.phase == "Running")


def _pod(
    name: str,
    requests: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - fields of a pod
) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": dict(requests)}}
    metadata = {"name": name, "annotations": dict(annotations or {})}
    body = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def play_scene(name: str, sandbox: Sandbox, narrator: Narrator) -> SceneResult:
    """Play a scene on a sandbox with its nodes; raises `ServiceError` if a service ends."""
    scene = SCENES[name]
    started = time.monotonic()
    narrator.say(scene.about)
    limits = ",".join(_TINY_CLUSTER)
    options = (f"--limit={limits}", f"--cluster-limit={limits}")
    with (
        connect(kubeconfig=str(sandbox.kubeconfig), user_agent="berth-demo") as client,
        running_services(sandbox, narrator, operator_options=options) as services,
    ):

        def require_services() -> None:
            for service in services:
                service.require_running()

        try:
            sentence, shown = scene.play(Stage(sandbox, client, narrator.say, require_services)), True
        except SceneError as error:
            sentence, shown = str(error), False
    return SceneResult(name, shown, sentence, round(time.monotonic() - started, 1))


def _names(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{pod_number}" for pod_number in range(count))


# --- window ----------------------------------------------------------------------------------------------------------

_BATCH: Final = "batch"
_LOW: Final = {"cpu": "4", "memory": "16Gi"}
_LOW_PER_NODE: Final = 4
_PLACES: Final = 10
_LEAD: Final = timedelta(minutes=30)
"""From the creation of the window to its start; it reserves before, so that the scene need not last as long."""
_RUNTIME_SECONDS: Final = 10
_HUNGRY: Final = 8


def play_window(stage: Stage) -> str:
    """A ReservationWindow has ten places ready before its start, while everything else is full."""
    idle_node, ending_node, *other_nodes = (f"node-{node_number:03d}" for node_number in range(SCENES["window"].nodes))
    stage.make_namespace(_BATCH)
    short_names = _names("short-", _LOW_PER_NODE)
    runtime = {"volcano.sh/maximum-runtime": f"{_RUNTIME_SECONDS}s"}
    stage.create_pods(_BATCH, short_names, _LOW, runtime, nodeName=ending_node)
    for node in other_nodes:
        stage.create_pods(_BATCH, _names(f"long-{node}-", _LOW_PER_NODE), _LOW, nodeName=node)
    stage.wait("the low pods run", lambda: len(stage.running(_BATCH, "")) == _LOW_PER_NODE * (1 + len(other_nodes)))
    ends_at = time.monotonic() + _RUNTIME_SECONDS
    stage.say(f"{idle_node} is idle; {ending_node} is full of pods that say they run for {_RUNTIME_SECONDS} s at most;")
    stage.say(f"{len(other_nodes)} more nodes are full of pods that run for days and must not be preempted")

    start = _create_window(stage)
    stage.say(f"a ReservationWindow is to have 32 cpu for {_PLACES} pods at {format_timestamp(start)},")
    stage.say("and reserves up to 2h before; so it does now")
    stage.wait("the window holds what is idle", lambda: _held(stage) >= _PLACES // 2)
    stage.wait_for_fence(ending_node)
    stage.say(f"{_held(stage)} places are held on {idle_node}; the others wait for {ending_node}, which is fenced")
    stage.create_pods(_BATCH, _names("hungry-", _HUNGRY), _LOW)
    stage.say(f"{_HUNGRY} hungry pods come, which want whatever becomes free")
    stage.wait("the short pods have done their work", lambda: time.monotonic() >= ends_at)
    stage.end_pods(_BATCH, short_names)
    stage.say(f"the pods on {ending_node} have ended")
    stage.wait("all places are held", lambda: _held(stage) == _PLACES)
    stage.require("the window has not begun", _read_window(stage).status.state == WindowState.RESERVING)
    stage.say(f"all {_PLACES} places are held before the start; the pods come, and may be early")

    reserveable = {"volcano.sh/reserveable": "true"}
    stage.create_pods(_BATCH, _names("nightly-", _PLACES), {"cpu": "3200m", "memory": "6Gi"}, reserveable)
    seconds = stage.wait("the ten pods run", lambda: len(stage.running(_BATCH, "nightly-")) == _PLACES)
    nodes = {pod.spec.node_name for pod in stage.running(_BATCH, "nightly-")}
    stage.require(f"they run on {idle_node} and {ending_node}", nodes == {idle_node, ending_node})
    stage.require("no hungry pod got in", not stage.running(_BATCH, "hungry-"))
    running_pods = len(stage.running(_BATCH, "long-"))
    stage.require("no pod was preempted or moved", running_pods == _LOW_PER_NODE * len(other_nodes))
    return (
        f"{_PLACES} pods ran {seconds:.1f} s after they came in a full cluster: their places were held by the clock, "
        f"{_HUNGRY} hungry pods got none of them, and none of {running_pods} other pods was preempted or moved."
    )


def _create_window(stage: Stage) -> datetime:
    """Create a window with the proposal's numbers, and return its start."""
    start = (SystemClock().now() + _LEAD).replace(second=0, microsecond=0)
    spec = {
        "schedule": f"{start.minute} {start.hour} * * *",
        "duration": "1h",
        "startReserveAgo": "2h",
        "podNumToReserve": _PLACES,
        "resources": {"cpu": "32", "memory": "64Gi"},
    }
    manifest_head = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "ReservationWindow",
        "metadata": {"name": "nightly"},
    }
    stage.client.create(RESERVATION_WINDOWS, {**manifest_head, "spec": spec}, namespace=_BATCH)
    return start


def _read_window(stage: Stage) -> ReservationWindow:
    return ReservationWindow.read(stage.client.get(RESERVATION_WINDOWS, "nightly", namespace=_BATCH))


def _held(stage: Stage) -> int:
    return sum(occurrence.held for occurrence in _read_window(stage).status.active)


# --- starving --------------------------------------------------------------------------------------------------------

_TEAM: Final = "team"
_SMALL: Final = {"cpu": "5", "memory": "20Gi"}
_LARGE: Final = {"cpu": "15", "memory": "60Gi"}
_WAITS_SECONDS: Final = 5.0
"""For how long the scene looks that nothing gets in."""


def play_starving(stage: Stage) -> str:
    """A pod that wants a whole node gets one beside small pods that come and go."""
    (node,) = (f"node-{node_number:03d}" for node_number in range(SCENES["starving"].nodes))
    stage.make_namespace(_TEAM)
    _run_small(stage, "pod-1", "pod-2", "pod-3")
    stage.create_pods(_TEAM, ["pod-4"], _LARGE)
    stage.wait("pod-4 fits nowhere", lambda: _is_refused(stage, "pod-4"))
    stage.say(f"pod-1, pod-2 and pod-3 fill {node}; pod-4 wants as much as all three and waits")
    stage.end_pods(_TEAM, ["pod-1"])
    _run_small(stage, "pod-5")
    stage.say("pod-1 ends, and pod-5 takes its place at once: so it could go on for ever, and pod-4 starves")

    stage.client.create(DESCHEDULER_POLICIES, _policy_for_starving_jobs())
    stage.wait(f"{node} is kept", lambda: _phases(stage) == [ReservationPhase.WAITING])
    stage.wait_for_fence(node)
    stage.say(f"a policy with StarvingJobs keeps {node} for pod-4 until pods there have ended")
    stage.create_pods(_TEAM, ["pod-6", "pod-7"], _SMALL)
    stage.wait(
        "pod-6 and pod-7 fit nowhere", lambda: all(_is_refused(stage, f"pod-{pod_number}") for pod_number in (6, 7))
    )
    stage.end_pods(_TEAM, ["pod-2", "pod-3"])
    stage.say("pod-6 and pod-7 come, pod-2 and pod-3 end: there is room for both, and the fence keeps them off")
    until = time.monotonic() + _WAITS_SECONDS
    while time.monotonic() < until:
        stage.require("only pod-5 runs", _names_running(stage) == {"pod-5"})
        time.sleep(_POLL_SECONDS)
    stage.end_pods(_TEAM, ["pod-5"])
    seconds = stage.wait("pod-4 runs", lambda: _names_running(stage) == {"pod-4"})
    stage.say(f"pod-5 ends, and pod-4 runs {seconds:.1f} s later")
    stage.end_pods(_TEAM, ["pod-4"])
    stage.wait("pod-6 and pod-7 run", lambda: _names_running(stage) == {"pod-6", "pod-7"})
    return (
        f"pod-4 ran {seconds:.1f} s after the last pod on {node} had ended: the node was kept for it, pod-6 and pod-7, "
        "which came later and fitted sooner, ran after it, and nothing was preempted or moved."
    )


def _run_small(stage: Stage, *names: str) -> None:
    stage.create_pods(_TEAM, names, _SMALL)
    stage.wait(f"{', '.join(names)} run", lambda: set(names) <= _names_running(stage))


def _names_running(stage: Stage) -> set[str]:
    return {pod.metadata.name for pod in stage.running(_TEAM, "")}


def _is_refused(stage: Stage, name: str) -> bool:
    return stage.client.get(PODS, name, namespace=_TEAM, type=Pod).condition("PodScheduled") == "False"


def _phases(stage: Stage) -> list[ReservationPhase]:
    raw_reservations = stage.client.list(RESERVATIONS, namespace=_TEAM, label_selector=STARVING_JOB_LABEL).items
    return [Reservation.read(raw_reservation).phase for raw_reservation in raw_reservations]


def _policy_for_starving_jobs() -> dict[str, Any]:
    args = {"starvingJobTimeThreshold": 0, "reservedNodePercent": 100, "moves": "Never"}
    profile = {
        "name": "default",
        "pluginConfig": [{"name": STARVING_JOBS, "args": args}],
        "plugins": {"balance": {"enabled": [STARVING_JOBS]}},
    }
    spec = {"trigger": {"interval": "10s"}, "mode": RunMode.AUTO.value, "profiles": [profile]}
    return {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": "starving-jobs"}, "spec": spec}


# --- queues ----------------------------------------------------------------------------------------------------------

_WEB: Final = "web"
_ML: Final = "ml"
_GUARANTEED: Final = "25%"
_PART: Final = {"cpu": "1", "memory": "16Gi"}
_PARTS: Final = 8
"""So many fill both nodes."""


def play_queues(stage: Stage) -> str:
    """A queue keeps its guarantee though another one asks for everything."""
    for queue_name, spec in ((_WEB, {}), (_ML, {"guarantee": {"resource": {"memory": _GUARANTEED}}})):
        stage.make_namespace(queue_name)
        selector = {"matchLabels": {"kubernetes.io/metadata.name": queue_name}}
        manifest_head = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": queue_name}}
        stage.client.create(QUEUES, {**manifest_head, "spec": {"namespaceSelector": selector, **spec}})
    stage.wait("both queues are enforced", lambda: all(_is_enforced(stage, name) for name in (_WEB, _ML)))
    stage.say(f"queue {_ML} is guaranteed {_GUARANTEED} of the memory, queue {_WEB} nothing")
    for queue_name in (_WEB, _ML):
        stage.wait_for_gate(queue_name)
    quota = _PARTS // 4
    stage.create_pods(_WEB, _names("web-", _PARTS), _PART)
    stage.wait(
        f"all but {quota} of {_PARTS} run",
        lambda: len(stage.running(_WEB, "web-")) == _PARTS - quota,
    )
    stage.wait("the queue says what waits", lambda: _queue(stage, _WEB).status.waiting == quota)
    stage.say(f"{_WEB} asks for everything: {_PARTS - quota} pods run, and {quota} wait behind the gate")
    stage.create_pods(_ML, _names("ml-", quota), _PART)
    seconds = stage.wait(f"the pods of {_ML} run", lambda: len(stage.running(_ML, "ml-")) == quota)
    stage.require(f"{quota} of {_WEB} wait", len(stage.running(_WEB, "web-")) == _PARTS - quota)
    stage.say(f"{quota} pods of {_ML} come and run {seconds:.1f} s later")
    stage.end_pods(_ML, _names("ml-", quota))
    stage.client.merge_patch(QUEUES, _ML, {"spec": {"suspend": True}})
    stage.wait(f"all of {_WEB} run", lambda: len(stage.running(_WEB, "web-")) == _PARTS)
    return (
        f"{quota} pods of queue {_ML} ran {seconds:.1f} s after they were created, on what is guaranteed to it, though "
        f"queue {_WEB} had asked for all; once {_ML} was switched off, the rest of {_WEB} ran, too."
    )


def _queue(stage: Stage, name: str) -> GatedQueue:
    return GatedQueue.read(stage.client.get(QUEUES, name))


def _is_enforced(stage: Stage, name: str) -> bool:
    condition = _queue(stage, name).condition(QueueCondition.ENFORCED)
    return condition is not None and condition.status == "True"


# --- lent ------------------------------------------------------------------------------------------------------------

_YARN: Final = "yarn"
_NIGHT: Final = "night"
_QUARTER: Final = {"cpu": "4", "memory": "16Gi"}
_HALF: Final = {"cpu": "8", "memory": "32Gi"}
_MOVED_SECONDS: Final = 180.0
"""For pods that are moved: a run comes every ten seconds, and one that a move fails in is not the last."""


def play_lent(stage: Stage) -> str:
    """A lent node opens to preemptable pods, these make room for others by it, and it is empty after it has closed."""
    usual, lent = (f"node-{node_number:03d}" for node_number in range(SCENES["lent"].nodes))
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
    pod = _pod(name, _QUARTER, {JDB_MAX_UNAVAILABLE_ANNOTATION: "100%"}, restartPolicy="Always")
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


SCENES: Final[Mapping[str, Scene]] = {
    "lent": Scene("a node that Yarn lends by the hour: a RevocableZone and the plugin LentNodes", 2, play_lent),
    "queues": Scene("a part of the cluster that is guaranteed to a team: Queues", 2, play_queues),
    "starving": Scene("a large pod that starves beside small ones: the plugin StarvingJobs", 1, play_starving),
    "window": Scene("capacity that is held by the clock: a ReservationWindow", 5, play_window),
}
"""By the value of `--scene`."""
