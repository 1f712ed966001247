"""The registration of the gate of queues, by which API servers call the webhook for pods of certain namespaces."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog

from berth_core import QUEUE_WEBHOOK_CONFIGURATION
from berth_kube import KubeClient
from berth_operator import telemetry
from berth_operator.capabilities.queues import logs
from berth_operator.reservation.act.webhook_registration import put_webhooks
from berth_operator.reservation.manifests import build_webhook_configuration

QUEUE_PATH: Final = "/queue"
"""Path below the webhook's own; reviews that are sent there ask for the gate of queues."""

_LOG = structlog.get_logger(__name__)


def build_queue_registration(
    client_config: Mapping[str, Any], namespaces: Iterable[str], timeout_seconds: int
) -> dict[str, Any]:
    """Return the registration of the gate of queues, for every new pod of these namespaces.

    It has a path of its own, so that the answer follows from the request alone and every replica gives the same.
    """
    config = dict(client_config)
    if "service" in config:
        config["service"] = config["service"] | {"path": config["service"]["path"] + QUEUE_PATH}
    else:
        config["url"] += QUEUE_PATH
    body = build_webhook_configuration(
        client_config=config, namespaces=namespaces, own_namespace="", timeout_seconds=timeout_seconds
    )
    # Without an object selector: any pod could set the label that exempts it.
    for_pods = {key: value for key, value in body["webhooks"][0].items() if key != "objectSelector"}
    metadata = body["metadata"] | {"name": QUEUE_WEBHOOK_CONFIGURATION}
    return body | {"metadata": metadata, "webhooks": [for_pods | {"name": "queue.berth.volcano.sh"}]}


class QueueRegistration:
    """Registers the gate for the namespaces of queues, and removes the registration if there are none; thread-safe."""

    def __init__(
        self, client: KubeClient, *, client_config: Callable[[], Mapping[str, Any]], timeout_seconds: int
    ) -> None:
        self._client = client
        self._client_config = client_config
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._written: dict[str, Any] | None = None
        self._has_put = False
        self._was_there = True

    def put(self, namespaces: frozenset[str]) -> None:
        """Register the gate for these namespaces; with none, remove the registration."""
        with self._lock:
            body = None
            if namespaces:
                body = build_queue_registration(self._client_config(), namespaces, self._timeout_seconds)
            if self._has_put and body == self._written:
                return
            self._was_there = put_webhooks(
                self._client, QUEUE_WEBHOOK_CONFIGURATION, body, was_there=self._written is not None
            )
            if body != self._written:
                _LOG.info(logs.SCOPE_CHANGED, **{telemetry.KEY_NAMESPACES: sorted(namespaces)})
            self._written, self._has_put = body, True

    @property
    def is_absent(self) -> bool:
        """Return whether there was no registration before the last write."""
        with self._lock:
            return not self._was_there

    def forget(self) -> None:
        """Have the next `put` write the registration again, since others may have changed it."""
        with self._lock:
            self._has_put = False
