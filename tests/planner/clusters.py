"""Small builders for the planner's tests beside those of `builders`: affinities, spreads, snapshots, settings."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.structs import replace as with_fields

from berth_core import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PlannedMove,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    Volume,
)
from berth_core.objects.pods import PersistentVolumeClaimSource
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import Plan, PlannerSettings, WaveLimits
from berth_descheduler.planner.simulation.cluster import Cluster
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from planner_settings import planner_settings

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"

KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "namespaces": ("v1", "Namespace"),
    "disruption_budgets": ("policy/v1", "PodDisruptionBudget"),
    "persistent_volume_claims": ("v1", "PersistentVolumeClaim"),
    "persistent_volumes": ("v1", "PersistentVolume"),
    "reservations": ("batch.volcano.sh/v1alpha1", "Reservation"),
}


def selector(**match_labels: str) -> LabelSelector:
    return LabelSelector(match_labels=match_labels)


def expression(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def term(key: str = HOSTNAME, *, select: LabelSelector | None = None, **rest: Any) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=key, label_selector=select or selector(app="web"), **rest)


def company(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def apart(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def node_terms(*terms: NodeSelectorTerm) -> NodeSelector:
    return NodeSelector(node_selector_terms=terms)


def tied(*expressions: LabelSelectorRequirement, fields: tuple[LabelSelectorRequirement, ...] = ()) -> Affinity:
    required = node_terms(NodeSelectorTerm(match_expressions=expressions, match_fields=fields))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))


def spread(
    key: str = ZONE, *, max_skew: int = 1, select: LabelSelector | None = None, **rest: Any
) -> TopologySpreadConstraint:
    defaults = {"when_unsatisfiable": "DoNotSchedule", "label_selector": select or selector(app="web")}
    return TopologySpreadConstraint(max_skew=max_skew, topology_key=key, **{**defaults, **rest})


def claimed(name: str = "data") -> Volume:
    return Volume(name=name, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=name))


def refusal_of(snapshot: Snapshot, pod: str, target: str) -> RefusalReason | None:
    """Why the planner does not put a pod (`namespace/name` or a name in `default`) on a node."""
    cluster = Cluster.from_snapshot(snapshot)
    namespace, _, name = pod.rpartition("/")
    index = cluster.pod_numbers[namespace or "default", name]
    refusal = State(cluster).refusal(index, cluster.node_numbers[target])
    return None if refusal is None else refusal.reason


def settings(
    low: int | str = 40,
    defragment: int | str = 70,
    protection: int | str = 95,
    *,
    max_moves: int | None = None,
    per_controller: int = 1,
    per_wave: int = 25,
    now: Any = None,
    **args: Any,
) -> PlannerSettings:
    """Settings of `Threshold` that empties nodes whole, unless `wholeNodes` says otherwise."""
    resource = args.get("resourceType", "cpu")
    thresholds = {
        "lowThresholds": {resource: low},
        "defragmentThresholds": {resource: defragment},
        "protectionThresholds": {resource: protection},
    }
    return planner_settings(
        args=DefragmentationArgs.parse({"wholeNodes": True, **thresholds, **args}),
        max_moves=max_moves,
        waves=WaveLimits(per_controller=per_controller, per_wave=per_wave),
        now=now,
    )


def consolidating(
    *,
    protection: int | str = 100,
    max_moves: int | None = None,
    per_controller: int = 1,
    per_wave: int = 25,
    exact: bool = False,
    seed: int = 0,
    now: Any = None,
    **args: Any,
) -> PlannerSettings:
    raw = {"strategy": "Consolidate", "protectionThresholds": {"cpu": protection}, **args}
    if protection != 100:
        raw |= {"defragmentThresholds": {"cpu": 50}, "lowThresholds": {"cpu": 50}}
    return planner_settings(
        args=DefragmentationArgs.parse(raw),
        max_moves=max_moves,
        waves=WaveLimits(per_controller=per_controller, per_wave=per_wave),
        now=now,
        exact=exact,
        seed=seed,
    )


def making_room(
    *,
    shapes: Sequence[str] = (),
    pods: Sequence[str] = (),
    max_moves: int | None = None,
    per_controller: int = 1,
    exact: bool = False,
    as_typed: bool = False,
    **args: Any,
) -> PlannerSettings:
    """Settings of `MakeRoom`, as of a policy, or as a person has just typed them: then names must exist."""
    raw = {"strategy": "MakeRoom", "room": {"shapes": list(shapes), "pods": list(pods)}, **args}
    parsed = DefragmentationArgs.parse(raw)
    return planner_settings(
        args=replace(parsed, own=replace(parsed.own, names_must_exist=as_typed)),
        names_must_exist=as_typed,
        max_moves=max_moves,
        waves=WaveLimits(per_controller=per_controller),
        exact=exact,
    )


def minimizing(
    resource: str = "cpu",
    *,
    protection: int | str = 100,
    max_moves: int | None = None,
    per_controller: int = 1,
    seed: int = 0,
    now: Any = None,
    **args: Any,
) -> PlannerSettings:
    thresholds = {"protectionThresholds": {resource: protection}}
    raw = {"strategy": "MinimizeFragmentation", "resourceType": resource, **thresholds, **args}
    return planner_settings(
        args=DefragmentationArgs.parse(raw),
        max_moves=max_moves,
        waves=WaveLimits(per_controller=per_controller),
        seed=seed,
        now=now,
    )


def api_items(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The snapshot's objects as plain dictionaries, for the replay."""
    return [
        {"apiVersion": api_version, "kind": kind, **msgspec.to_builtins(one)}
        for field, (api_version, kind) in KINDS.items()
        for one in getattr(snapshot, field)
    ]


def moves_of(made: Plan) -> list[dict[str, Any]]:
    """The moves as the replay reads them."""
    return [msgspec.to_builtins(move) | {"wave": move.wave} for move in made.moves]


def wrongly_moved(snapshot: Snapshot, made: Plan) -> list[str]:
    """The moved pods that do not run, are being deleted, or that nothing would make again."""
    pods = {(one.metadata.namespace, one.metadata.name): one for one in snapshot.pods}
    moved = [pods[move.namespace, move.pod] for move in made.moves]
    return [
        one.metadata.name
        for one in moved
        if one.status.phase != "Running" or one.metadata.deletion_timestamp or not one.metadata.owner_references
    ]


def without_pod(snapshot: Snapshot, name: str) -> Snapshot:
    """The cluster once the controller of a pod was scaled down by it."""
    (gone,) = (old_pod for old_pod in snapshot.pods if old_pod.metadata.name == name)
    controller = "" if gone.controller is None else gone.controller.name
    workloads = tuple(
        with_fields(workload, spec=with_fields(workload.spec, replicas=workload.spec.replicas - 1))
        if workload.metadata.name == controller
        else workload
        for workload in snapshot.workloads
    )
    return replace(snapshot, pods=tuple(left for left in snapshot.pods if left is not gone), workloads=workloads)


def carried_out(snapshot: Snapshot, moves: Sequence[PlannedMove]) -> Snapshot:
    """The cluster after moves: each pod is gone, and a new one is on its target."""
    targets = {(move.namespace, move.pod): move.target for move in moves}
    pods = []
    for old_pod in snapshot.pods:
        meta = old_pod.metadata
        if (target := targets.get((meta.namespace, meta.name))) is not None:
            metadata = with_fields(meta, name=f"{meta.name}-new", uid=f"{meta.uid}-new")
            pods.append(with_fields(old_pod, metadata=metadata, spec=with_fields(old_pod.spec, node_name=target)))
        else:
            pods.append(old_pod)
    return replace(snapshot, pods=tuple(pods))
