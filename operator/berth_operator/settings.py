"""The operator's settings: meaning, unit and default of each."""

from dataclasses import dataclass, field
from typing import Final, TypeVar

from berth_core import (
    DEFAULT_NAMESPACE,
    HANDOVER_SECONDS,
    PLACEHOLDER_IMAGE,
    UNTRIED_SECONDS,
    InputError,
    require_positive,
)
from berth_operator.quota.limits import LimitSettings
from berth_service.process import unique_identity

S = TypeVar("S")

_SHORTEST_SETTLE_SECONDS: Final = 0.3
# The API server refuses a longer `timeoutSeconds` (pkg/apis/admissionregistration/validation).
LONGEST_WEBHOOK_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class HandoverSettings:
    """The times of a hand-over."""

    settle_seconds: float = _SHORTEST_SETTLE_SECONDS
    """How long after the binding of the pod the guard of a node with a fence stays. A fence is a pod, and a watch keeps
    the order of its events: every scheduler sees the fence before the end of the placeholder, and the binding before
    the end of the fence, however late it sees any of them. 0.3 s is the shortest time that was measured to be safe for
    the guard."""

    unfenced_settle_seconds: float = 3.0
    """The same for a node without a fence, and the time between guarding it and deleting the placeholder. Schedulers
    see nodes and pods through separate watches, and the guard alone has to outlast the delay between them."""

    timeout_seconds: float = HANDOVER_SECONDS
    """How far ahead the deadline of a hand-over is set, and how long a pod has once a scheduler has found no place for
    it, or has bound it and it does not run; after that guard and nomination are removed. Only seconds count during
    which the operator could act."""

    untried_seconds: float = UNTRIED_SECONDS
    """How long a pod may stay gated, and after that wait for a scheduler that does not report on it; the same seconds
    count as for the timeout. Its place is kept meanwhile, however many other pods the scheduler tries first."""

    at_once: int = 50
    """How many slots change hands at the same time; the others stay held meanwhile. A pod that takes several begins
    while any is left. Each deleted placeholder makes the scheduler try all pods again that wait for a place, and before
    the owners, because they are older: with hundreds at once it would reach the owners too late."""

    def __post_init__(self) -> None:
        """Reject times that break the protocol."""
        require_positive("at_once", self.at_once)
        if self.settle_seconds < _SHORTEST_SETTLE_SECONDS:
            raise InputError(
                field="settle_seconds", value=str(self.settle_seconds), expected="at least 0.3, the shortest safe time"
            )
        if self.unfenced_settle_seconds < self.settle_seconds:
            raise InputError(
                field="unfenced_settle_seconds",
                value=str(self.unfenced_settle_seconds),
                expected="at least settle_seconds, as a guard alone keeps off fewer pods",
            )
        require_positive("timeout_seconds", self.timeout_seconds)
        require_positive("untried_seconds", self.untried_seconds)


@dataclass(frozen=True)
class PlaceholderSettings:
    """The namespace, image and deadline of placeholder pods."""

    namespace: str = DEFAULT_NAMESPACE
    """Berth's own namespace, with the placeholders, the webhook's Secret and the Lease."""

    image: str = PLACEHOLDER_IMAGE
    """An image that does nothing, preferably one that the nodes have already, such as their runtime's pause image."""

    deadline_margin_seconds: int = 60
    """Added to what is left of the TTL for the pod's activeDeadlineSeconds, by which the kubelet ends the placeholder
    even if Berth is gone."""

    def __post_init__(self) -> None:
        """Reject a margin that lets the kubelet end a placeholder too early."""
        require_positive("deadline_margin_seconds", self.deadline_margin_seconds)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where the webhook listens and how the API server reaches it."""

    host: str = "127.0.0.1"
    """Address to listen on; in a cluster `::`, which means all addresses of both families."""

    port: int = 9443
    """Port to listen on; 0 takes a free one."""

    url: str = ""
    """Base address for an API server that reaches the operator directly (`https://HOST:PORT`); "" means through the
    Service or, without one, at the address that it listens on."""

    service: str = ""
    """Name of the Service in front of the operator in its own namespace."""

    certificate_seconds: float = 365 * 24 * 3600.0
    """Lifetime of a server certificate, which is renewed in its last quarter."""

    certificate_folder: str = ""
    """Folder in which `tls.crt`, `tls.key` and `ca.crt` of an issuer are mounted; "" for own certificates alone."""

    drain_seconds: float = 5.0
    """How long a stopping webhook keeps answering, until the API server has seen that the Service leads elsewhere."""

    timeout_seconds: int = 5
    """How long the API server waits before it creates the pod as if there were no webhook. A busy machine needs more
    than two seconds now and then, and a pod that is not gated lands elsewhere."""

    def __post_init__(self) -> None:
        """Reject times that cannot work."""
        require_positive("certificate_seconds", self.certificate_seconds)
        if not 1 <= self.timeout_seconds <= LONGEST_WEBHOOK_SECONDS:
            expected = f"1 to {LONGEST_WEBHOOK_SECONDS} seconds, as the API server takes it"
            raise InputError("timeout_seconds", str(self.timeout_seconds), expected)
        if self.drain_seconds < 0:
            raise InputError("drain_seconds", str(self.drain_seconds), "0 or more seconds")


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """All settings of the operator."""

    handover: HandoverSettings = field(default_factory=HandoverSettings)
    placeholders: PlaceholderSettings = field(default_factory=PlaceholderSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    capabilities: tuple[object, ...] = ()
    """The settings of capabilities, each of a class of its own."""

    identity: str = field(default_factory=unique_identity)
    """Name under which this process holds the Lease."""

    lease_seconds: int = 6
    """How long the Lease lasts without renewal; another replica takes over after that."""

    retention_seconds: float = 3600.0
    """How long a finished Reservation stays; 0 keeps it for ever."""

    unschedulable_seconds: float = 600.0
    """How long the scheduler may find no place before a Reservation fails and releases what it holds; with 0 it does so
    when it expires."""

    node_lost_seconds: float = 300.0
    """How long a node may be not ready before its places count as lost, and those that are not tied to it are held
    elsewhere; 0 means that they never do. Only seconds count during which the operator could act."""

    sweep_seconds: float = 15.0
    """Seconds between two passes that compare everything with the API server."""

    workers: int = 16
    """Number of threads that reconcile."""

    health_host: str = "127.0.0.1"
    """Address of `/healthz` and `/metrics`."""

    health_port: int = 8080
    """Port of `/healthz` and `/metrics`; 0 takes a free one."""

    def of(self, kind: type[S]) -> S:
        """Return the settings of a capability by their class, its defaults if none were given."""
        return next((settings for settings in self.capabilities if isinstance(settings, kind)), None) or kind()

    def __post_init__(self) -> None:
        """Reject settings that cannot work; the error names the field."""
        for field_name in ("lease_seconds", "sweep_seconds", "workers"):
            require_positive(field_name, getattr(self, field_name))
        for field_name in ("retention_seconds", "unschedulable_seconds"):
            if getattr(self, field_name) < 0:
                raise InputError(field=field_name, value=str(getattr(self, field_name)), expected="0 or more seconds")
