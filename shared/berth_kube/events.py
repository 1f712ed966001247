"""Writing of Events, for `kubectl describe`."""

import hashlib
import logging
from typing import Any, Final, Literal

from berth_core import Clock, ObjectReference, SystemClock, format_timestamp
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, KubeError
from berth_kube.resources import EVENTS

# ruff: noqa: A002 - an Event's `type`

_LOG = logging.getLogger(__name__)
# The API server refuses longer ones (`NoteLengthLimit` in pkg/apis/core/validation/events.go).
_LONGEST_MESSAGE: Final = 1024
# Of the 253 characters of a name; the suffix has the rest.
_LONGEST_NAME_PART: Final = 200
_NAMESPACE_OF_CLUSTER_OBJECTS: Final = "default"

EventType = Literal["Normal", "Warning"]


def record_event(
    client: KubeClient,
    *,
    regarding: ObjectReference,
    reason: str,
    message: str,
    type: EventType = "Normal",
    reporting_component: str,
    clock: Clock | None = None,
) -> bool:
    """Write an Event or count up an equal one; return whether that worked.

    It never raises a KubeError: a lost Event must not fail the work that it reports.
    """
    now = format_timestamp((clock or SystemClock()).now())
    event = build_event(regarding, reason, message, type, reporting_component) | {
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        try:
            # Created first, and counted up where it exists: most events are new, and a read before would double their
            # calls.
            client.create(EVENTS, event)
        except AlreadyExistsError:
            _count_up(client, event["metadata"], now)
    except KubeError as error:
        _LOG.warning("the event %s of %s %s is not recorded: %s", reason, regarding.kind, regarding.name, error)
        return False
    return True


def build_event(
    regarding: ObjectReference, reason: str, message: str, type: EventType, reporting_component: str
) -> dict[str, Any]:
    """Return the Event without its times; equal events of an object share a name."""
    parts = (regarding.uid, reporting_component, type, reason, message)
    # The name carries the identity of the event: client-go's correlator keeps it in memory instead, and starts to count
    # anew with each process.
    suffix = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{regarding.name[:_LONGEST_NAME_PART].rstrip('-.')}.{suffix}",
            # Where client-go's recorder puts events on cluster-scoped objects (`makeEvent` in tools/record/event.go).
            "namespace": regarding.namespace or _NAMESPACE_OF_CLUSTER_OBJECTS,
        },
        "involvedObject": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "uid": regarding.uid,
            **({"namespace": regarding.namespace} if regarding.namespace else {}),
        },
        "type": type,
        "reason": reason,
        # The API server refuses longer ones (`NoteLengthLimit` in pkg/apis/core/validation/events.go).
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": reporting_component},
        "reportingComponent": reporting_component,
    }


def _count_up(client: KubeClient, metadata: dict[str, str], now: str) -> None:
    """Increment the event's count; a count that another writer overwrites does no harm."""
    name, namespace = metadata["name"], metadata["namespace"]
    known_event = client.get(EVENTS, name, namespace=namespace)
    body = {"count": (known_event.get("count") or 0) + 1, "lastTimestamp": now}
    client.merge_patch(EVENTS, name, body, namespace=namespace)
