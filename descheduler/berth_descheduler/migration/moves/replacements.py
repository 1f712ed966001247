"""What controllers have made in the stead of pods that are gone, and whether they will make more."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from berth_core import BerthError, PlannedMove, Pod, api_group
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.moves.facts import Presence, Replacement
from berth_descheduler.migration.moves.memory import MoveMemory, OwnerKey, Since
from berth_descheduler.migration.moves.observation import WaveObservation, placed_pods
from berth_descheduler.migration.plans.watch import ObservedPlan, owner_key
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
    reservation = observed.reservations.get(memory.key)
    begun_at = (reservation.metadata.creation_timestamp if reservation else None) or memory.place.created
    return {
        pod.metadata.name: pod
        for uid, pod in observed.pods_by_owner.get(memory.replicas, {}).items()
        if (pod.metadata.creation_timestamp or "") >= begun_at
        and uid != memory.move.pod_uid
        and not (pod.is_terminating or pod.is_terminal)
    }


def find_successors(
    wave: Sequence[MoveMemory], observed_wave: WaveObservation, observed: ObservedPlan, begun: str
) -> None:
    """Give each pod that is gone without a place one that its controller has made since the plan began."""
    gone_moves = [
        memory
        for memory in wave
        if memory.move.is_eviction and observed_wave.observations[memory.index].presence is Presence.GONE
    ]
    planned_uids = {memory.move.pod_uid for memory in wave}
    new_pods: dict[OwnerKey, list[Pod]] = {memory.replicas: [] for memory in gone_moves}
    for pod in sorted(observed.pods.values(), key=lambda observed_pod: observed_pod.key) if gone_moves else ():
        is_new = pod.metadata.uid not in planned_uids and (pod.metadata.creation_timestamp or "") >= begun
        if is_new and not pod.is_terminating and (replicas := owner_key(pod)) in new_pods:
            new_pods[replicas].append(pod)
    for gone_move in gone_moves:
        if new_pods[gone_move.replicas]:
            pod = new_pods[gone_move.replicas].pop()
            replacement = Replacement(pod.metadata.name, pod.spec.node_name, pod.is_ready)
            observation = observed_wave.observations[gone_move.index]
            observed_wave.observations[gone_move.index] = replace(observation, replacement=replacement)


_WITH_REPLICAS: Final = {resource.kind: resource for resource in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)}
"""Controllers that say how many pods they want, by kind."""


class ControllerQuestions:
    """Asks controllers how many pods they want where nothing replaces a pod that is gone.

    Each is asked at once, and then once in `gap_seconds`. An answer counts at the look that follows it, together with
    the pods that are there then. The answer 0 counts at once, any other only once the pod has been gone for
    `gap_seconds`: until then its replacement may be about to be made.
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
        for key, memory in self._unreplaced(wave, observed_wave).items():
            if self._makes_no_more(memory, answers.get(key), observed, now):
                observed_wave.replicas_by_owner[key].is_full = True
            elif now - self._asked_at.get(key, -self._gap_seconds) >= self._gap_seconds:
                self._asked_at[key] = now
                self._ask(key, memory.move)

    def _ask(self, key: OwnerKey, move: PlannedMove) -> None:
        def answered(wanted: int | None) -> None:
            self._answers[key] = wanted

        self._calls.make(lambda: wanted_pods(self._client, move), answered)

    def _makes_no_more(self, memory: MoveMemory, wanted: int | None, observed: ObservedPlan, now: float) -> bool:
        """Return whether a controller that wants `wanted` pods, None where that is not known, makes no other."""
        # Zero needs no second look at the pods: a controller that wants none makes none.
        if not wanted:
            return wanted == 0
        is_late = memory.waits.lasts(Since.GONE, self._gap_seconds, now)
        # A ReplicaSet counts only active pods (`FilterActivePods`), so terminating and finished ones must not fill its
        # number.
        return is_late and _count_settled(memory, observed) >= wanted

    def _unreplaced(self, wave: Sequence[MoveMemory], observed_wave: WaveObservation) -> dict[OwnerKey, MoveMemory]:
        """Return, for each controller, the move whose pod has been gone for the longest without a pod in its place."""
        unreplaced: dict[OwnerKey, MoveMemory] = {}
        for memory in sorted(wave, key=lambda memory: memory.waits.since(Since.GONE) or 0.0):
            if not memory.finished and observed_wave.observations[memory.index].is_unclaimed:
                unreplaced.setdefault(memory.replicas, memory)
        return unreplaced


def _count_settled(memory: MoveMemory, observed: ObservedPlan) -> int:
    """Return how many living pods a controller has, without new ones to which the place may still go."""
    new_pods, placed_uids = made_since(memory, observed), placed_pods(observed)
    return sum(
        not (pod.is_terminating or pod.is_terminal) and (pod.metadata.name not in new_pods or uid in placed_uids)
        for uid, pod in observed.pods_by_owner.get(memory.replicas, {}).items()
    )


def wanted_pods(client: KubeClient, move: PlannedMove) -> int | None:
    """Return how many pods the controller of a move's pod wants, 0 if it is gone.

    None where that number is not known or does not say whether the pod is made again: a StatefulSet makes the very pod
    again whatever others it has, and a rollout makes pods of another ReplicaSet, which may take the place as well.
    """
    owner = move.owner
    resource = _WITH_REPLICAS.get(owner.kind) if owner is not None else None
    if owner is None or resource is None or api_group(owner.api_version) != resource.group:
        return None
    try:
        controller = client.get(resource, owner.name, namespace=move.namespace)
        metadata, replica_count = controller["metadata"], wanted_replicas(controller)
        # A controller that is being deleted reconciles no more, and one that was made again does not own this pod.
        if metadata.get("deletionTimestamp") or (owner.uid and metadata["uid"] != owner.uid):
            return 0
        if resource is STATEFUL_SETS:
            return None if replica_count else 0
        return None if _is_rolling_out(client, controller) else replica_count
    except NotFoundError:
        return 0
    except BerthError:
        return None


def _is_rolling_out(client: KubeClient, replica_set: Mapping[str, Any]) -> bool:
    """Return whether the Deployment of a ReplicaSet has yet to make pods, of whichever ReplicaSet."""
    owner = controller_reference(replica_set)
    if owner is None or owner.kind != DEPLOYMENTS.kind:
        return False
    try:
        deployment = client.get(DEPLOYMENTS, owner.name, namespace=replica_set["metadata"]["namespace"])
    except NotFoundError:
        return False
    is_alone = ((deployment.get("status") or {}).get("replicas") or 0) == wanted_replicas(deployment)
    return not deployment["metadata"].get("deletionTimestamp") and not (is_alone and is_rolled_out(deployment))
