"""What controllers have made in the stead of pods that are gone, and whether they will make more."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from berth_core import BerthError, PlannedMove, Pod, api_group
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.moves.facts import Presence, Replacement
from berth_descheduler.migration.moves.memory import MoveMemory, OwnerKey, Since
from berth_descheduler.migration.moves.observation import WaveObservation, owner_key, placed_pods
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_kube import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    KubeClient,
    NotFoundError,
    controller_reference,
    is_rolled_out,
    wanted_replicas,
)


def made_since(memory: MoveMemory, observed: ObservedPlan) -> dict[str, Pod]:
    """Return the living pods that the controller has made since the place was asked for, by name."""
    place = observed.reservations.get(memory.key)
    begun = (place.metadata.creation_timestamp if place else None) or memory.place.created
    return {
        pod.metadata.name: pod
        for uid, pod in observed.pods.items()
        if (pod.metadata.creation_timestamp or "") >= begun
        and uid != memory.move.pod_uid
        and owner_key(pod) == memory.replicas
        and not (pod.is_terminating or pod.is_terminal)
    }


def find_successors(
    wave: Sequence[MoveMemory], observed_wave: WaveObservation, observed: ObservedPlan, begun: str
) -> None:
    """Give each pod that is gone without a place one that its controller has made since the plan began."""
    gone = [
        one for one in wave if one.move.is_eviction and observed_wave.observations[one.index].presence is Presence.GONE
    ]
    known = {one.move.pod_uid for one in wave}
    made: dict[OwnerKey, list[Pod]] = {one.replicas: [] for one in gone}
    for pod in sorted(observed.pods.values(), key=lambda one: one.key) if gone else ():
        is_new = pod.metadata.uid not in known and (pod.metadata.creation_timestamp or "") >= begun
        if is_new and not pod.is_terminating and (replicas := owner_key(pod)) in made:
            made[replicas].append(pod)
    for one in gone:
        if made[one.replicas]:
            pod = made[one.replicas].pop()
            seen = Replacement(pod.metadata.name, pod.spec.node_name, pod.is_ready)
            observation = observed_wave.observations[one.index]
            observed_wave.observations[one.index] = replace(observation, replacement=seen)


_COUNTING: Final = {one.kind: one for one in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)}
"""Controllers that say how many pods they want, by kind."""


class ControllerQuestions:
    """Asks controllers how many pods they want where nothing replaces an evicted pod.

    A pod counts as not replaced once it has been gone for `gap_seconds`. Each controller is asked at most once in
    `gap_seconds`. An answer counts at the look that follows it, together with the pods that are there then.
    """

    def __init__(self, client: KubeClient, calls: BackgroundCalls, gap_seconds: float) -> None:
        self._client, self._calls, self._gap_seconds = client, calls, gap_seconds
        self._asked_at: dict[OwnerKey, float] = {}
        self._answers: dict[OwnerKey, int | None] = {}

    def ask(
        self, wave: Sequence[MoveMemory], observed_wave: WaveObservation, observed: ObservedPlan, now: float
    ) -> None:
        """Note the controllers that make no more pods, and ask the others."""
        answers, self._answers = self._answers, {}
        for key, memory in self._overdue(wave, observed_wave, now).items():
            wanted = answers.get(key)
            if wanted is not None and _count_settled(memory, observed) >= wanted:
                observed_wave.replicas_by_owner[key].is_full = True
            elif now - self._asked_at.get(key, -self._gap_seconds) >= self._gap_seconds:
                self._asked_at[key] = now
                self._ask(key, memory.move)

    def _ask(self, key: OwnerKey, move: PlannedMove) -> None:
        def answered(wanted: int | None) -> None:
            self._answers[key] = wanted

        self._calls.make(lambda: wanted_pods(self._client, move), answered)

    def _overdue(
        self, wave: Sequence[MoveMemory], observed_wave: WaveObservation, now: float
    ) -> dict[OwnerKey, MoveMemory]:
        """Return the first move of each controller whose pod is gone for long, and whose place is free still."""
        found: dict[OwnerKey, MoveMemory] = {}
        for memory in wave:
            seen = observed_wave.observations[memory.index]
            is_late = memory.waits.lasts(Since.GONE, self._gap_seconds, now)
            if is_late and not memory.finished and seen.is_unclaimed:
                found.setdefault(memory.replicas, memory)
        return found


def _count_settled(memory: MoveMemory, observed: ObservedPlan) -> int:
    """Return how many living pods a controller has, without new ones to which the place may still go."""
    made, placed = made_since(memory, observed), placed_pods(observed)
    return sum(
        owner_key(pod) == memory.replicas
        and not (pod.is_terminating or pod.is_terminal)
        and (pod.metadata.name not in made or uid in placed)
        for uid, pod in observed.pods.items()
    )


def wanted_pods(client: KubeClient, move: PlannedMove) -> int | None:
    """Return how many pods the controller of a move's pod wants, 0 if it is gone.

    None where their number does not say whether the pod is made again: that is not known, a StatefulSet makes the very
    pod again whatever others it has, and a rollout makes pods of another ReplicaSet, which may take the place as well.
    """
    owner = move.owner
    resource = _COUNTING.get(owner.kind) if owner is not None else None
    if owner is None or resource is None or api_group(owner.api_version) != resource.group:
        return None
    try:
        found = client.get(resource, owner.name, namespace=move.namespace)
        metadata, wanted = found["metadata"], wanted_replicas(found)
        if metadata.get("deletionTimestamp") or (owner.uid and metadata["uid"] != owner.uid):
            return 0
        if resource is STATEFUL_SETS:
            return None if wanted else 0
        return None if _is_rolling_out(client, found) else wanted
    except NotFoundError:
        return 0
    except BerthError:
        return None


def _is_rolling_out(client: KubeClient, replica_set: Mapping[str, Any]) -> bool:
    """Return whether the Deployment of a ReplicaSet has yet to make pods, of whichever ReplicaSet."""
    behind = controller_reference(replica_set)
    if behind is None or behind.kind != DEPLOYMENTS.kind:
        return False
    try:
        found = client.get(DEPLOYMENTS, behind.name, namespace=replica_set["metadata"]["namespace"])
    except NotFoundError:
        return False
    is_alone = ((found.get("status") or {}).get("replicas") or 0) == wanted_replicas(found)
    return not found["metadata"].get("deletionTimestamp") and not (is_alone and is_rolled_out(found))
