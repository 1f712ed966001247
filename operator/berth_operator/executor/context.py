"""What every part of the operator that acts has in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from berth_core import Clock, ObjectMeta, RetryableError
from berth_kube import KubeClient, Resource
from berth_operator.cache import Cache
from berth_operator.settings import OperatorSettings

WITHOUT_NODE: Final = "status.phase=Pending,spec.nodeName="
"""Field selector of pods that wait for a node."""
NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that may hold something of a node."""


class Annotated(msgspec.Struct, frozen=True):
    """The part of an object that its annotations are in, whatever its kind."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Context:
    """The client, the cache, the settings and the clock of one operator."""

    client: KubeClient
    cache: Cache
    settings: OperatorSettings
    clock: Clock


class LeaseLostError(RetryableError):
    """This replica may no longer act."""


def require_lease(leads: Callable[[], bool]) -> None:
    """Raise `LeaseLostError` if another replica may act by now."""
    if not leads():
        raise LeaseLostError("the lease was lost; another replica goes on")


def write_status(client: KubeClient, resource: Resource, meta: ObjectMeta, status: msgspec.Struct) -> dict[str, Any]:
    """Replace the status of this object, not of a later one of its name; return the object."""
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "add", "path": "/status", "value": msgspec.to_builtins(status)},
    ]
    return client.json_patch(resource, meta.name, operations, namespace=meta.namespace, subresource="status")
