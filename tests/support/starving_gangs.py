"""Gangs that starve beside small pods that come and go: what the benchmark and the deep test of starving jobs share."""

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    STANDING_FENCE_LABEL,
    STARVING_JOB_LABEL,
    BerthError,
    Pod,
    Reservation,
    SlotState,
)
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube import Changed, Informer, Removed, Store, WatchItem
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import PODS, RESERVATIONS
from cluster_objects import pod_template
from waiting import eventually

GROUP: Final = "scheduling.x-k8s.io/pod-group"
GANG: Final = "gang-"
_LOOK_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Load:
    """What runs on the nodes, and what starves beside it: gangs whose pods each want a whole node."""

    nodes: int
    gangs: int
    gang_size: int = 2
    node_cpus: int = 4
    gang_seconds: float = 3.0
    small_seconds: tuple[float, float] = (8.0, 16.0)
    hungry_share: float = 1.3
    """How many times as many small pods of 1 cpu there are as fit; each that ends is replaced at once."""

    @property
    def fitting(self) -> int:
        return self.nodes * self.node_cpus


@dataclass
class Seen:
    """What a watch saw of the gangs, their Reservations and the fences, in monotonic seconds."""

    created: dict[str, float] = field(default_factory=dict)
    run: dict[str, float] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    most_fenced: int = 0
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    """By uid of a Reservation: when it was asked for, when all its slots were held, and when it was over."""
    names: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    """By uid of a Reservation: its name, and the phase in which it was over or deleted."""

    def seconds_to_run(self) -> list[float]:
        return sorted(at - self.created[gang] for gang, at in self.run.items())

    def made_for(self, *, gangs: bool) -> Counter[str]:
        """Count the Reservations by name: for gangs, or for small pods that had waited as long."""
        return Counter(name for uid, name in self.names.items() if self._is_of_gang(uid) == gangs)

    def stage_seconds(self, first: str, last: str) -> list[float]:
        """Return how long the Reservations of gangs took from one stage to another."""
        both = (one for uid, one in self.stages.items() if self._is_of_gang(uid) and first in one and last in one)
        return sorted(one[last] - one[first] for one in both)

    def _is_of_gang(self, uid: str) -> bool:
        return self.names.get(uid, "").startswith(f"starving-{GANG}")


class StarvingGangs:
    """Lets pods come and go in a namespace, and watches what becomes of its gangs."""

    def __init__(self, client: KubeClient, namespace: str, load: Load, seed: int = 1) -> None:
        self.seen = Seen()
        self._client = client
        self._namespace = namespace
        self._load = load
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._pods: Store[Pod] = Store()
        self._fences: Store[Pod] = Store()
        self._ends: dict[str, float] = {}
        """By uid: when a pod that runs has to end."""
        self._ended: set[str] = set()
        self.small_created = 0
        self._small_left = 0
        self._failures: list[BerthError] = []

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Fill the nodes with small pods, and keep them full while these come and go."""
        fences = {"namespace": DEFAULT_NAMESPACE, "label_selector": STANDING_FENCE_LABEL}
        kept = {"namespace": self._namespace, "label_selector": STARVING_JOB_LABEL}
        over = threading.Event()
        thread = threading.Thread(target=lambda: self._work(over), daemon=True)
        with (
            self._watch(self._note_pod, resource=PODS, namespace=self._namespace, type=Pod),
            self._watch(self._note_fence, resource=PODS, type=Pod, **fences),
            self._watch(self._note_reservation, resource=RESERVATIONS, **kept),
        ):
            self._fill()
            eventually("the nodes are full", lambda: self._running_small() == self._load.fitting, seconds=240)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join(30)
        assert not self._failures, self._failures

    def starve(self) -> None:
        """Create the gangs."""
        for gang in range(self._load.gangs):
            name = f"{GANG}{gang}"
            self.seen.created[name] = time.monotonic()
            for member in range(self._load.gang_size):
                self._create(f"{name}-{member}", self._load.node_cpus, {GROUP: name})

    @property
    def have_all_run(self) -> bool:
        return len(self.seen.run) == self._load.gangs

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _work(self, over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            try:
                self._turn()
            except BerthError as error:
                self._failures.append(error)
                return

    def _turn(self) -> None:
        """Let end what has run for long enough, and replace small pods.

        Of a node that is not kept one small pod ends at a time, so that none becomes free by chance.
        """
        now = time.monotonic()
        here = [pod for pod in self._pods.objects() if pod.status.phase == "Running"]
        here = [pod for pod in here if pod.metadata.uid not in self._ended]
        running = Counter(pod.spec.node_name for pod in here)
        for pod in here:
            node = pod.spec.node_name
            may_end = bool(_gang_of(pod)) or node in self.seen.fenced or running[node] == self._load.node_cpus
            if self._ends_at(pod, now) <= now and may_end:
                running[node] -= 1
                with suppress(NotFoundError):
                    self._client.delete(PODS, pod.metadata.name, namespace=self._namespace, grace_seconds=0)
                self._ended.add(pod.metadata.uid)
                self._small_left -= not _gang_of(pod)
        self._fill()

    def _ends_at(self, pod: Pod, now: float) -> float:
        if gang := _gang_of(pod):
            return self.seen.run.get(gang, math.inf) + self._load.gang_seconds
        return self._ends.setdefault(pod.metadata.uid, now + self._chance.uniform(*self._load.small_seconds))

    def _fill(self) -> None:
        """Replace the small pods that have ended."""
        while self._small_left < int(self._load.fitting * self._load.hungry_share):
            self._create(f"small-{self.small_created}", 1, {"app": "small"})
            self.small_created += 1
            self._small_left += 1

    def _running_small(self) -> int:
        return sum(not _gang_of(pod) and pod.status.phase == "Running" for pod in self._pods.objects())

    def _create(self, name: str, cpu: int, labels: dict[str, str]) -> None:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **pod_template(labels, cpu=str(cpu))}
        body["metadata"]["name"] = name
        body["spec"]["restartPolicy"] = "Never"
        self._client.create(PODS, body, namespace=self._namespace)

    # --- watches ------------------------------------------------------------------------------------------------------

    def _watch(self, note: Callable[[WatchItem[Any]], None], **what: Any) -> Informer[Any]:  # noqa: ANN401 - of `watch`
        return Informer("gangs", lambda stop: self._client.watch(stop=stop, **what), note, self._failures.append)

    def _note_pod(self, item: WatchItem[Pod]) -> None:
        self._pods.apply(item)
        match item:
            case Changed(pod) if (gang := _gang_of(pod)) and pod.status.phase == "Running":
                members = [one for one in self._pods.objects() if _gang_of(one) == gang]
                if sum(one.status.phase == "Running" for one in members) == self._load.gang_size:
                    self.seen.run.setdefault(gang, time.monotonic())

    def _note_fence(self, item: WatchItem[Pod]) -> None:
        self._fences.apply(item)
        fenced = {pod.spec.node_name for pod in self._fences.objects()}
        self.seen.fenced = fenced
        self.seen.most_fenced = max(self.seen.most_fenced, len(fenced))

    def _note_reservation(self, item: WatchItem[Any]) -> None:
        match item:
            case Changed(raw):
                one = Reservation.read(raw)
            case Removed(raw):
                one = Reservation.read(raw)
                self.seen.ends.setdefault(one.metadata.uid, f"{one.phase}, deleted")
                self._stage(one.metadata.uid, "over")
                return
            case _:
                return
        self.seen.names[one.metadata.uid] = one.metadata.name
        self._stage(one.metadata.uid, "asked")
        states = [slot.state for slot in one.status.slots]
        if states and all(state is not SlotState.PENDING for state in states):
            self._stage(one.metadata.uid, "held")
        if one.phase.terminal:
            self.seen.ends.setdefault(one.metadata.uid, str(one.phase))
            self._stage(one.metadata.uid, "over")

    def _stage(self, uid: str, name: str) -> None:
        self.seen.stages.setdefault(uid, {}).setdefault(name, time.monotonic())


def _gang_of(pod: Pod) -> str:
    return pod.metadata.labels.get(GROUP, "")


def starving_policy(percent: int, *, threshold_seconds: int) -> dict[str, Any]:
    """Return a policy that helps jobs after a time for which few small pods wait; those that do are helped, too."""
    percentages = {"reservedNodePercent": percent, "namespaceNodePercent": percent}
    args = {"starvingJobTimeThreshold": threshold_seconds, **percentages, "moves": "Never"}
    profile = {
        "name": "default",
        "pluginConfig": [{"name": "StarvingJobs", "args": args}],
        "plugins": {"balance": {"enabled": ["StarvingJobs"]}},
    }
    spec = {"trigger": {"interval": "10s"}, "mode": "Auto", "profiles": [profile]}
    return {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": "starving"}, "spec": spec}
