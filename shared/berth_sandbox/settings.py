"""Settings of a sandbox: its size, its scheduler and its name."""

import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from berth_core import InputError, parse_quantity
from berth_sandbox.go_modules import DEFAULT_KUBERNETES, control_plane

KUBERNETES_VARIABLE: Final = "BERTH_SANDBOX_KUBERNETES"
MOST_REAL_NODES: Final = 100
"""Each has a network of its own for its pods."""

QUIET_NODES: Final = 100
"""So many nodes have the Leases of a kubelet's defaults."""

LEASE_SECONDS: Final = 40
"""The kubelet's default; kwok renews after a quarter of it."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def _preset_kubernetes() -> str:
    return os.environ.get(KUBERNETES_VARIABLE, "") or DEFAULT_KUBERNETES


def choose_lease_seconds(nodes: int) -> int:
    """Return how long the Lease of a node lasts, so that all nodes together renew no more than ten a second.

    The Leases of 1,000 nodes at the kubelet's default are 100 requests a second, which two cores have no room for.
    """
    return LEASE_SECONDS * max(nodes, QUIET_NODES) // QUIET_NODES


def check_name(name: str) -> None:
    """Raise InputError for a name that is invalid in a context or path."""
    if not _NAME.fullmatch(name):
        raise InputError("name", name, "lower-case letters, digits and dashes, 40 at most")


class ScoringStrategy(StrEnum):
    """How kube-scheduler's NodeResourcesFit ranks the nodes that a pod fits."""

    LEAST_ALLOCATED = "LeastAllocated"
    """Emptiest node first: the scheduler's own default, which spreads and so fragments."""
    MOST_ALLOCATED = "MostAllocated"
    """Fullest node first: bin packing."""


class Pace(StrEnum):
    """How fast the simulated kubelets start and end pods."""

    QUICK = "quick"
    """A bound pod is ready and a deleted one gone within 0.3 s."""
    REAL = "real"
    """As real nodes: containers are created for 2 to 20 s, are ready up to 60 s later, and end by their grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """What to start; by default an empty cluster with the stock scheduler."""

    nodes: int = 0
    """How many nodes to make at the start."""
    node_cpu: str = "16"
    """Allocatable cpu of each node, a Kubernetes quantity."""
    node_memory: str = "64Gi"
    """Allocatable memory of each node, a Kubernetes quantity."""
    node_pods: int = 110
    """Pod slots of each node."""
    lease_seconds: int | None = None
    """How long the Lease of a node lasts that kwok plays; None chooses it by the nodes made at the start."""
    pace: Pace = Pace.QUICK
    """How fast the nodes start and end pods, which annotations of a pod may change."""
    scoring: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED
    """Scoring of the default scheduler and of the second one."""
    second_scheduler: bool = False
    """Whether a second, independent kube-scheduler serves pods with `schedulerName: second-scheduler`."""
    volcano: bool = False
    """Whether Volcano's scheduler and controllers run, for pods with `schedulerName: volcano`."""
    services: bool = False
    """Whether Berth's operator and descheduler run, under their own accounts."""
    real_nodes: int = 0
    """How many real nodes to start, on this machine; they need Linux and root."""
    name: str | None = None
    """Name under which the sandbox can be found again; None makes a nameless one in a temporary folder."""
    kubernetes: str = field(default_factory=_preset_kubernetes)
    """Minor version of the control plane, such as `1.33`; BERTH_SANDBOX_KUBERNETES sets it for all that name none."""
    timeout_seconds: float = 180.0
    """How long the start of the control plane may take, without building and without filling."""

    def __post_init__(self) -> None:
        """Reject values that cannot be started; raises InputError with the field."""
        if self.name is not None:
            check_name(self.name)
        control_plane(self.kubernetes)
        if self.nodes < 0:
            raise InputError("nodes", self.nodes, "0 or more")
        if not 0 <= self.real_nodes <= MOST_REAL_NODES:
            raise InputError("real nodes", self.real_nodes, f"0 to {MOST_REAL_NODES}")
        if self.node_pods < 1:
            raise InputError("node pods", self.node_pods, "1 or more")
        if self.lease_seconds is not None and self.lease_seconds < LEASE_SECONDS:
            raise InputError("lease seconds", self.lease_seconds, f"{LEASE_SECONDS} or more")
        for name, value in (("node cpu", self.node_cpu), ("node memory", self.node_memory)):
            try:
                positive = parse_quantity(value).milli() > 0
            except InputError as error:
                raise error.within(name, joint=": ") from error
            if not positive:
                raise InputError(name, value, "more than nothing")

    @property
    def node_lease_seconds(self) -> int:
        """How long the Lease of a node lasts that kwok plays."""
        return choose_lease_seconds(self.nodes) if self.lease_seconds is None else self.lease_seconds
