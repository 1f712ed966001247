"""The watches that keep a `QueueStore` up to date while there are queues."""

from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from berth_core import BerthError, Namespace, Pod
from berth_kube import NAMESPACES, PODS, Informer, KubeClient, WatchItem, stop_informers
from berth_operator import telemetry
from berth_operator.capabilities.queues.store import QueueStore
from berth_operator.reservation.act.context import NOT_ENDED

_WATCH_AGAIN_SECONDS: Final = 5.0

Item = TypeVar("Item")

_LOG = structlog.get_logger(__name__)


class QueueWatches:
    """Watches all pods and namespaces between `start` and `stop`, which may be called again and again."""

    def __init__(self, client: KubeClient, store: QueueStore, on_change: Callable[[], None]) -> None:
        self._client = client
        self._store = store
        self._on_change = on_change
        self._informers: tuple[Informer[Pod] | Informer[Namespace], ...] = ()

    def start(self) -> None:
        client, store = self._client, self._store
        pods: Informer[Pod] = Informer(
            "queue-pods",
            lambda stop: client.watch(PODS, field_selector=NOT_ENDED, type=Pod, stop=stop),
            lambda item: self._take(store.take_pod, item),
            self._log_failure,
            retry_seconds=_WATCH_AGAIN_SECONDS,
        )
        namespaces: Informer[Namespace] = Informer(
            "queue-namespaces",
            lambda stop: client.watch(NAMESPACES, type=Namespace, stop=stop),
            lambda item: self._take(store.take_namespace, item),
            self._log_failure,
            retry_seconds=_WATCH_AGAIN_SECONDS,
        )
        self._informers = (pods, namespaces)
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        stop_informers(self._informers)
        self._informers = ()

    def _take(self, take: Callable[[WatchItem[Item]], None], item: WatchItem[Item]) -> None:
        take(item)
        self._on_change()

    def _log_failure(self, error: BerthError) -> None:
        _LOG.warning(telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "watch", telemetry.KEY_ERROR: str(error)})
