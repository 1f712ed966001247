"""Owns single pods on a live sandbox: made, read and waited for.

It does not own the sandbox.
"""

from typing import Any, Final

from berth_core.objects import Pod
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError
from berth_kube.resources import PODS
from cluster_objects import pod_template
from waiting import eventually

SOON: Final = 30.0
"""Seconds within which a cluster on a busy machine does what it is asked."""


def make_pod(client: KubeClient, namespace: str, name: str, **spec: Any) -> None:  # noqa: ANN401 - passed on
    """Create a pod; a new namespace takes a moment to get the service account that pods need."""
    annotations = spec.pop("annotations", {})
    template = pod_template({}, cpu="100m", **spec)
    body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": name, "annotations": annotations}}

    def created() -> bool:
        try:
            client.create(PODS, body, namespace=namespace)
        except ForbiddenError:
            return False
        return True

    eventually("the pod is admitted", created, seconds=SOON)


def read_pod(client: KubeClient, namespace: str, name: str) -> Pod:
    return client.get(PODS, name, namespace=namespace, type=Pod)


def wait_until(client: KubeClient, namespace: str, name: str, phase: str) -> Pod:
    eventually(f"{name} is {phase}", lambda: read_pod(client, namespace, name).status.phase == phase, seconds=SOON)
    return read_pod(client, namespace, name)
