"""How many Ready pods a controller lacks, and whether one more may be gone.

An eviction takes a Ready pod away until its replacement is Ready. What may be gone at once includes what is gone
already: siblings that are not Ready, are being deleted, wait for a node, or have not been made. A pod that is itself
not Ready takes nothing away, and neither does one that surges.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from berth_core import RELEASED_HASH, TEMPLATE_HASH_LABEL, OwnerReference, Pod, Workload, count
from berth_core.workloads import (
    DEPLOYMENT_KIND,
    JOB_KIND,
    REPLICA_SET_KIND,
    REPLICATION_CONTROLLER_KIND,
    STATEFUL_SET_KIND,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason

_COUNTED: Final = frozenset({REPLICA_SET_KIND, STATEFUL_SET_KIND, JOB_KIND, REPLICATION_CONTROLLER_KIND})
"""Controllers that say how many pods they want; a Volcano Job has its gang's minimum instead."""

_ROLLING_UPDATE: Final = "RollingUpdate"
# What the API server writes where a Deployment does not say it; for StatefulSets it is 1 (KEP-961).
_DEFAULT_OF_DEPLOYMENTS: Final = "25%"
_PERCENTAGE: Final = re.compile(r"(\d+)%")
_WHOLE: Final = 100

ControllerKey: TypeAlias = tuple[str, str, str, str]
"""API group, kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class _Controller:
    """A controller, or the Deployment behind it, with its pods."""

    name: str
    wanted: int
    ready: int
    at_once: int
    """How many pods may be gone at once."""

    @property
    def gone(self) -> int:
        return max(0, self.wanted - self.ready)


class Availability:
    """Answers for the pods of one snapshot, or of one namespace."""

    def __init__(self, pods: Iterable[Pod], workloads: Iterable[Workload], at_once: int = 1) -> None:
        """`at_once` is the policy's own number: pods of one controller that may be gone at once."""
        self._at_once = at_once
        self._workloads = {_key_of_workload(workload): workload for workload in workloads}
        self._keys: dict[tuple[str, OwnerReference], ControllerKey | None] = {}
        self._ready: Counter[ControllerKey] = Counter()
        self._succeeded: Counter[ControllerKey] = Counter()
        self._alive: Counter[ControllerKey] = Counter()
        for pod in pods:
            key = self._key(pod) or _key_before_release(pod)
            if key is None or pod.is_terminating:
                continue
            self._succeeded[key] += pod.status.phase == "Succeeded"
            self._alive[key] += not pod.is_terminal
            self._ready[key] += pod.is_ready and not pod.is_terminal
        self._controllers: dict[ControllerKey, _Controller] = {}

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why a Ready pod may not be evicted now: too many of its siblings are gone."""
        controller = self._controller(pod) if pod.is_ready else None
        if controller is None or controller.gone < controller.at_once:
            return None
        return Refusal(
            RefusalReason.TOO_FEW_READY,
            f"its {controller.name} wants {count(controller.wanted, 'pod')} and has {controller.ready} Ready, "
            f"and no more than {controller.at_once} may be gone at once",
        )

    def still_to_go(self, pod: Pod) -> int | None:
        """Return how many further pods of a pod's controller may be gone at once, at least one; None: not known."""
        controller = self._controller(pod)
        return None if controller is None else max(1, controller.at_once - controller.gone)

    def _key(self, pod: Pod) -> ControllerKey | None:
        """Return the Deployment behind a pod's ReplicaSet, or its controller where there is none."""
        owner, namespace = pod.controller, pod.metadata.namespace
        if owner is None:
            return None
        if (namespace, owner) not in self._keys:
            self._keys[namespace, owner] = self._find_key(namespace, owner)
        return self._keys[namespace, owner]

    def _find_key(self, namespace: str, owner: OwnerReference) -> ControllerKey | None:
        kind = owner.group_kind
        if kind not in _COUNTED:
            return None
        key = (*kind, namespace, owner.name)
        workload = self._workloads.get(key)
        # During a rollout the pods of a Deployment are those of two ReplicaSets, and only together are they as many as
        # it wants.
        for above in workload.metadata.owner_references if workload is not None and kind == REPLICA_SET_KIND else ():
            above_key = (*above.group_kind, namespace, above.name)
            if above.controller and above_key[:2] == DEPLOYMENT_KIND and above_key in self._workloads:
                return above_key
        return key

    def _controller(self, pod: Pod) -> _Controller | None:
        key = self._key(pod)
        if key is None:
            return None
        if key not in self._controllers:
            wanted = self._wanted(key)
            self._controllers[key] = _Controller(
                f"{key[1]} {key[3]}", wanted, self._ready[key], max(self._at_once, self._unavailable(key, wanted))
            )
        return self._controllers[key]

    def _wanted(self, key: ControllerKey) -> int:
        """Return how many pods a controller wants; as many as it has where it does not say or is not known."""
        workload = self._workloads.get(key)
        if workload is None:
            return self._alive[key]
        spec = workload.spec
        if key[:2] != JOB_KIND:
            return self._alive[key] if spec.replicas is None else spec.replicas
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        succeeded = max(workload.status.succeeded or 0, self._succeeded[key])
        if spec.completions is not None:
            return min(parallelism, max(0, spec.completions - succeeded))
        # A Job without completions makes no further pods once one has succeeded (`manageJob` in `pkg/controller/job`).
        return min(parallelism, self._alive[key]) if succeeded else parallelism

    def _unavailable(self, key: ControllerKey, wanted: int) -> int:
        """Return the `maxUnavailable` of a controller's rolling updates, at least one as Kubernetes has it.

        A Deployment with the strategy Recreate allows none: it says that two versions never run beside each other, and
        nothing of a pod that leaves while none is rolled out.
        """
        workload = self._workloads.get(key)
        if workload is None or key[:2] not in {DEPLOYMENT_KIND, STATEFUL_SET_KIND}:
            return 1
        is_deployment = key[:2] == DEPLOYMENT_KIND
        strategy = workload.spec.strategy if is_deployment else workload.spec.update_strategy
        if strategy is not None and strategy.type not in {"", _ROLLING_UPDATE}:
            return 1
        amount = strategy.rolling_update.max_unavailable if strategy and strategy.rolling_update else None
        if amount is None:
            amount = _DEFAULT_OF_DEPLOYMENTS if is_deployment else 1
        return max(1, _resolve(amount, wanted))


def _key_of_workload(workload: Workload) -> ControllerKey:
    return (*workload.group_kind, workload.metadata.namespace, workload.metadata.name)


def _key_before_release(pod: Pod) -> ControllerKey | None:
    """Return the Deployment of a pod that its ReplicaSet let go for a surge: it serves as before."""
    if pod.metadata.labels.get(TEMPLATE_HASH_LABEL) != RELEASED_HASH:
        return None
    owners: Mapping[tuple[str, str], str] = {owner.group_kind: owner.name for owner in pod.metadata.owner_references}
    name = owners.get(DEPLOYMENT_KIND)
    return None if name is None else (*DEPLOYMENT_KIND, pod.metadata.namespace, name)


def _resolve(amount: int | str, wanted: int) -> int:
    """Return a number or a percentage of the wanted pods, rounded down; 0 for what is neither."""
    if isinstance(amount, int):
        return amount
    percentage = _PERCENTAGE.fullmatch(amount)
    # Rounded down, as `ResolveFenceposts` of the Deployment controller rounds maxUnavailable (maxSurge is rounded up).
    return wanted * int(percentage[1]) // _WHOLE if percentage else 0
