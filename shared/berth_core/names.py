"""Computed object names.

A name is a function of what it names: a create that is repeated after a lost answer hits AlreadyExists and makes no
second object.
"""

import hashlib
import hmac
import re
from functools import lru_cache
from typing import Final

OPERATOR_LEASE: Final = "berth-operator"
OPERATOR_RENEWALS: Final = 12
"""Renewals of the operator's Lease within its duration, a sign that the operator is alive."""
HANDOVER_SECONDS: Final = 60.0
"""Seconds that an ungated pod may take with a scheduler before its place loses its guard."""
UNTRIED_SECONDS: Final = 900.0
"""Seconds for which a place is guarded for an ungated pod that no scheduler reports on."""
DESCHEDULER_LEASE: Final = "berth-descheduler"
"""Its holder executes a run, and holds it only for that run."""

LEADER_LEASE: Final = "berth-descheduler-leader"
"""Its holder is the descheduler's replica that serves the policies."""

WEBHOOK_CONFIGURATION: Final = "berth-handover"
QUEUE_WEBHOOK_CONFIGURATION: Final = "berth-queues"
EVICTION_WEBHOOK_CONFIGURATION: Final = "berth-evictions"
WEBHOOK_SECRET: Final = "berth-webhook-tls"  # noqa: S105 - the name of an object, not a secret
REPLACEMENT_TRIAL: Final = "berth-replacement-trial"
"""The ServiceAccount that makes pods by dry run only, and the admission policy and binding that hold it to that."""

DEFAULT_NAMESPACE: Final = "berth-system"
FENCE_CONFIG_MAP: Final = "berth-fence-never-starts"
"""The ConfigMap that the fence of a hand-over mounts, and that does not exist."""
NODE_PRICES_CONFIG_MAP: Final = "berth-node-prices"
"""The ConfigMap in Berth's own namespace that says what nodes of an instance type cost."""

PLACEHOLDER_IMAGE: Final = "rancher/mirrored-pause:3.6"
"""Image of placeholders unless the operator's settings name another."""

# `LabelValueMaxLength` and `DNS1123SubdomainMaxLength` of apimachinery's pkg/util/validation.
LONGEST_LABEL_VALUE: Final = 63
LONGEST_SUBDOMAIN: Final = 253

_HASH_LENGTH: Final = 10
# A pod's name may have 253 characters, but it is also its hostname, which the kubelet cuts at 63; names of placeholders
# stay below that and can be values of labels (`truncatePodHostnameIfNeeded`).
_LONGEST_NAME: Final = 63
_MAX_DIGITS: Final = 6
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")


def is_dns_label(text: str) -> bool:
    """Return whether a text is a DNS-1123 label, as namespace names are."""
    return len(text) <= _LONGEST_NAME and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return whether a text is a DNS-1123 subdomain, as names of pods, nodes and plans are."""
    return len(text) <= LONGEST_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(text) is not None


def _short_hash(*parts: str) -> str:
    """Return a short stable hash of the parts, joined with NUL, which no name contains."""
    # Joined without a separator, ("web1", "2") and ("web", "12") would be one name.
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HASH_LENGTH]


def _readable(prefix: str, *, reserve: int) -> str:
    """Return a prefix as part of a DNS label, cut so that `reserve` more characters fit."""
    return prefix[: _LONGEST_NAME - reserve].strip("-.").replace(".", "-")


def placeholder_name(reservation_name: str, reservation_uid: str, task: str, index: int, after: str = "") -> str:
    """Return the name of a slot's placeholder; `after` is the uid of its predecessor."""
    suffix = f"-{index}-{_short_hash(reservation_uid, task, str(index), *([after] if after else []))}"
    return f"{_readable(f'{reservation_name}-{task}', reserve=len(suffix))}{suffix}"


def fence_name(node: str, period: int) -> str:
    """Return the name of a node's fence for hand-overs that end in a period."""
    suffix = f"-{period}-{_short_hash(node)}"
    return f"{_readable(f'fence-{node}', reserve=len(suffix))}{suffix}"


def standing_fence_name(node: str, kind: str, period: int) -> str:
    """Return the name of the standing fence of a kind that a node gets in a period."""
    suffix = f"-{period}-{_short_hash(node, kind)}"
    return f"{_readable(f'standing-fence-{node}', reserve=len(suffix))}{suffix}"


def probe_name(reservation_uid: str) -> str:
    """Return the name of the dry-run pod that proves a Reservation's hand-over path."""
    return f"probe-{_short_hash(reservation_uid)}"


def priority_class_name(value: int) -> str:
    """Return the name of the placeholders' PriorityClass for a value."""
    return f"berth-placeholder-{value}" if value >= 0 else f"berth-placeholder-minus-{-value}"


def plan_name(started: str, seed: str) -> str:
    """Return a plan's name from its start (`20261121-071500`) and a seed."""
    return f"plan-{started}-{_short_hash(seed)[:5]}"


def scheduled_plan_name(started: str, policy_uid: str, scheduled: str) -> str:
    """Return the name of a policy's plan for a scheduled time, the same at each call."""
    return f"plan-{started}-{_short_hash(policy_uid, scheduled)}"


def is_scheduled_plan(name: str, policy_uid: str, scheduled: str) -> bool:
    """Return whether a plan is a policy's for a scheduled time, whenever it was made."""
    return name.endswith(f"-{_short_hash(policy_uid, scheduled)}")


def requested_plan_name(requested_by: str, idempotency_key: str, secret: bytes = b"") -> str:
    """Return the name of a requested plan: the same key gives the same plan.

    With a secret, other callers cannot compute the name, and so cannot take it first.
    """
    if not secret:
        return f"run-{_short_hash(requested_by, idempotency_key)}"
    message = f"{requested_by}\0{idempotency_key}".encode()
    return f"run-{hmac.digest(secret, message, 'sha256').hex()[:_HASH_LENGTH]}"


def reservation_name(plan: str, pod_uid: str) -> str:
    return f"{_readable(plan, reserve=_HASH_LENGTH + 1)}-{_short_hash(pod_uid)}"


def window_reservation_name(window: str, window_uid: str, start: str) -> str:
    """Return the name of a window's Reservation for one start (`2026-11-22T03:00:00Z`).

    The same start gives the same name; a window that is created again under its old name gets other names.
    """
    suffix = f"-{re.sub('[-:Z]', '', start).lower()[:13]}-{_short_hash(window_uid, start)}"
    return f"{_readable(window, reserve=len(suffix))}{suffix}"


def queue_slot_name(queue: str, queue_uid: str, number: int) -> str:
    """Return the name of a Reservation that holds a slot of a queue's guarantee.

    A queue that is created again under its old name gets other names.
    """
    suffix = f"-held-{number}-{_short_hash(queue, queue_uid)}"
    return f"{_readable(queue, reserve=len(suffix))}{suffix}"


def queue_slot_number(name: str, queue: str, queue_uid: str) -> int | None:
    """Return the number in the name of a queue's slot; None for a name that `queue_slot_name` did not make."""
    number = name.removesuffix(f"-{_short_hash(queue, queue_uid)}").rpartition("-held-")[2]
    # `isdecimal` is true of the digits of every script, which `int` reads as well.
    is_plain = number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS
    return int(number) if is_plain and name == queue_slot_name(queue, queue_uid, int(number)) else None


def readable_label(name: str) -> str:
    """Return a name cut to fit a label's value."""
    return _readable(name, reserve=0)


def room_taint_value(plan: str, node: str) -> str:
    """Return the value of the taint that reserves a node, unique to the plan and the node."""
    return f"{_plan_part(plan)}.{_short_hash(plan, node)}"


def is_room_taint_of(plan: str, value: str) -> bool:
    return value.rpartition(".")[0] == _plan_part(plan)


def _plan_part(plan: str) -> str:
    return _readable(plan, reserve=_HASH_LENGTH + 1)


QUALIFIED_NAME: Final = (
    "a name such as cpu or example.com/gpu: at most 63 letters, digits, '-', '_' and '.', at both ends a letter or "
    "digit, alone or after a DNS name and '/'"
)
_QUALIFIED_PART: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@lru_cache(maxsize=1 << 12)
def is_qualified_name(name: str) -> bool:
    """Return whether Kubernetes accepts a name of a resource or a label (`validation.IsQualifiedName`)."""
    prefix, slash, part = name.rpartition("/")
    if slash and (len(prefix) > LONGEST_SUBDOMAIN or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return False
    return _QUALIFIED_PART.fullmatch(part) is not None


def is_label_value(text: str) -> bool:
    return not text or _QUALIFIED_PART.fullmatch(text) is not None
