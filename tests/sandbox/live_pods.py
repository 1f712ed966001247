"""Single pods on a live sandbox: made, read and waited for."""

import threading
from collections.abc import Callable
from typing import Any, Final

from berth_core import Pod
from berth_core.errors import RetryableError
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, ForbiddenError
from berth_kube.resources import PODS
from berth_kube.watch_items import Changed, Listed
from cluster_objects import pod_template
from waiting import eventually

SOON: Final = 120.0
"""Seconds within which a cluster on a busy machine does what it is asked, also after its API server was away.

Controllers that lost it look for it again half a minute later at worst.
"""


def make_pod(client: KubeClient, namespace: str, name: str, **spec: Any) -> None:  # noqa: ANN401 - passed on
    """Create a pod; a namespace takes a moment to get the service account that pods need, and a server to be back."""
    annotations = spec.pop("annotations", {})
    template = pod_template({}, cpu="100m", **spec)
    body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": name, "annotations": annotations}}

    def created() -> bool:
        try:
            client.create(PODS, body, namespace=namespace)
        except (ForbiddenError, RetryableError):
            return False
        except AlreadyExistsError:
            return True
        return True

    eventually("the pod is admitted", created, seconds=SOON)


def read_pod(client: KubeClient, namespace: str, name: str) -> Pod:
    return client.get(PODS, name, namespace=namespace, type=Pod)


def wait_until(client: KubeClient, namespace: str, name: str, phase: str) -> Pod:
    found: list[Pod] = []

    def is_so() -> bool:
        found[:] = [read_pod(client, namespace, name)]
        return found[0].status.phase == phase

    eventually(f"{name} is {phase}", is_so, seconds=SOON)
    return found[0]


def watch_until(client: KubeClient, namespace: str, phase: str, make: Callable[[], None]) -> tuple[Pod, ...]:
    """Make the first pod of a namespace and return every state of it, however short, to the first in a phase.

    Where that takes too long what there was until then is returned.
    """
    stop = threading.Event()
    giving_up = threading.Timer(SOON, stop.set)
    seen: list[Pod] = []
    items = client.watch(PODS, namespace=namespace, type=Pod, stop=stop)
    listed = next(items)
    assert isinstance(listed, Listed)
    assert not listed.items
    try:
        make()
        giving_up.start()
        for item in items:
            seen.extend([item.item] if isinstance(item, Changed) else [])
            if seen and seen[-1].status.phase == phase:
                break
    finally:
        giving_up.cancel()
        stop.set()
    return tuple(seen)
