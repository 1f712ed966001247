"""Where pods are, by a watch: which marked nodes are in use, and whether any pod waits for room.

Listing the pods of each marked node at every sweep costs a call per node, and listing all pods costs as much as the
cluster has pods. A watch costs only what changes; it goes on from where a run's own has ended, or from one list.
"""

import json
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import structlog

from berth_core import BerthError, Pod
from berth_descheduler import telemetry
from berth_descheduler.migration.nodes.freed_marks import PodWhereabouts, ReadWhereabouts
from berth_descheduler.migration.nodes.pods import PodHead, is_free
from berth_descheduler.planner import is_pending
from berth_kube import PODS, Bookmark, Changed, Informer, KubeClient, Listed, Listing, Removed, WatchItem

_WATCH_AGAIN_SECONDS: Final = 30.0

_LOG = structlog.get_logger(__name__)


class WatchedWhereabouts(PodWhereabouts):
    """Watches pods while there are marked nodes, from its own list or a run's; reads them where it may not watch."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._read = ReadWhereabouts(client)
        self._lock = threading.Lock()
        self._informer: Informer[PodHead] | None = None
        self._node_by_uid: dict[str, str] | None = None
        """The node of each pod that occupies one, "" for a pod that waits for room; None before the first list."""

        self._left_behind = ""
        """The same in one piece of JSON, as a list or a run has left it; "" once it is unpacked."""

        self._left_at = ""
        """The resourceVersion from which the watch goes on, "" where it has to list."""

    def nodes_in_use(self, nodes: Collection[str]) -> frozenset[str]:
        if not nodes:
            self.stop()
            return frozenset()
        if self._informer is None and self._nodes_of_pods() is None:
            # This one list answers now, and the watch goes on from it.
            pods = self._client.list(PODS, type=PodHead)
            self._take((head.as_pod() for head in pods.items), pods.resource_version)
        nodes_of_pods = self._nodes_of_pods()
        self._begin_watch()
        return self._read.nodes_in_use(nodes) if nodes_of_pods is None else nodes_of_pods.intersection(nodes)

    def may_pods_wait(self) -> bool:
        nodes_of_pods = self._nodes_of_pods()
        return self._read.may_pods_wait() if nodes_of_pods is None else "" in nodes_of_pods

    def _nodes_of_pods(self) -> frozenset[str] | None:
        with self._lock:
            self._unpack()
            return None if self._node_by_uid is None else frozenset(self._node_by_uid.values())

    def take_over(self, pods: Listing[Pod]) -> None:
        """Take over the pods as a run has last seen them: where it has marked nodes, a watch goes on from there."""
        if self._informer is None:
            self._take(pods.items, pods.resource_version)

    def _take(self, pods: Iterable[Pod], resource_version: str) -> None:
        node_by_uid: dict[str, str] = {}
        for pod in pods:
            _put(node_by_uid, pod)
        # In one block until the run's objects are gone: each short text would take the place of another one among these
        # objects, and keep its page from being returned.
        left_behind = json.dumps(node_by_uid)
        with self._lock:
            if self._informer is None:  # begun meanwhile, it knows more
                self._node_by_uid, self._left_behind, self._left_at = None, left_behind, resource_version

    def _unpack(self) -> None:
        """Unpack what a list or a run has left behind; under the lock."""
        if self._left_behind:
            names: dict[str, str] = {}
            left_behind: dict[str, str] = json.loads(self._left_behind)
            self._node_by_uid = {uid: names.setdefault(node, node) for uid, node in left_behind.items()}
            self._left_behind = ""

    def stop(self) -> None:
        """Stop the watch, and forget what it has seen."""
        if self._informer is not None:
            self._informer.stop()
            self._informer.join()
            self._informer = None
        self._forget()

    def _begin_watch(self) -> None:
        if self._informer is not None:
            return
        informer = Informer(
            PODS.plural,
            self._watch,
            self._note,
            self._fail,
            retry_seconds=_WATCH_AGAIN_SECONDS,
        )
        with self._lock:
            self._informer = informer
        informer.start()

    def _watch(self, stop: threading.Event) -> Iterator[WatchItem[PodHead]]:
        with self._lock:
            # Used once: a watch that is begun again later has to list, as this version may be too old by then.
            left_at, self._left_at = self._left_at, ""
        # The last resourceVersion of a run or a list is recent, so the watch goes on from it without a list; the API
        # server answers 410 if it is not, and then the watch lists.
        since: Listing[PodHead] | None = Listing((), left_at) if left_at else None
        return self._client.watch(PODS, type=PodHead, stop=stop, since=since)

    def _note(self, event: WatchItem[PodHead]) -> None:
        with self._lock:
            self._unpack()
            known = {} if self._node_by_uid is None else self._node_by_uid
            match event:
                case Listed(heads):
                    self._node_by_uid = known = {}
                    for head in heads:
                        _put(known, head.as_pod())
                case Changed(head):
                    _put(known, head.as_pod())
                case Removed(head):
                    known.pop(head.metadata.uid, None)
                case Bookmark():
                    pass

    def _fail(self, error: BerthError) -> None:
        _LOG.error(telemetry.WATCH_FAILED, **{telemetry.KEY_ERROR: str(error)})
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            self._node_by_uid, self._left_behind, self._left_at = None, "", ""


def _put(node_by_uid: dict[str, str], pod: Pod) -> None:
    if is_pending(pod):
        node_by_uid[_copy(pod.metadata.uid)] = ""
    elif pod.spec.node_name and not is_free((pod,)):
        node_by_uid[_copy(pod.metadata.uid)] = _copy(pod.spec.node_name)
    else:
        node_by_uid.pop(pod.metadata.uid, None)


def _copy(text: str) -> str:
    """Return a text of its own: one of a pod keeps the mebibyte in which the pod was decoded.

    It is not interned: that would give back the text of a pod, as those that are decoded are interned.
    """
    return text.encode().decode()
