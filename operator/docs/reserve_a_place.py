"""Reserve the place of a pod and print its node: `pip install pykube-ng`, then run this with your kubeconfig."""

import sys
import time
from typing import Any

from pykube import HTTPClient, KubeConfig
from pykube.exceptions import KubernetesError
from pykube.objects import NamespacedAPIObject
from requests import RequestException

RESOURCES = {"requests": {"cpu": "500m", "memory": "256Mi"}}
TEMPLATE = {"spec": {"containers": [{"name": "web", "image": "nginx", "resources": RESOURCES}]}}
OWNER = {"labelSelector": {"matchLabels": {"app": "web"}}}
SPEC = {"ttl": "10m", "owners": [OWNER], "tasks": [{"name": "web", "template": TEMPLATE}]}


class Reservation(NamespacedAPIObject):
    """A Reservation, as pykube addresses it."""

    version = "batch.volcano.sh/v1alpha1"
    endpoint = "reservations"
    kind = "Reservation"


def reserve(api: HTTPClient, name: str, spec: dict[str, Any], *, wait_seconds: float = 60) -> Reservation:
    """Create a Reservation and wait until a pod that is created now gets its place."""
    place = Reservation(
        api, {"apiVersion": Reservation.version, "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    )
    place.create()
    deadline = time.monotonic() + wait_seconds
    while True:
        status = place.obj.get("status", {})
        true = {condition["type"] for condition in status.get("conditions", []) if condition["status"] == "True"}
        if "Succeeded" in true or true >= {"Available", "HandoverReady"}:
            return place
        if "Failed" in true or time.monotonic() > deadline:
            state = status.get("state", {"phase": "Pending", "message": "the operator has not reported anything yet"})
            raise RuntimeError(f"{name} is {state['phase']}: {state.get('message', 'no reason given')}")
        time.sleep(0.5)
        place.reload()


def main() -> None:
    """Reserve the place and print what to do next, or why there is none."""
    try:
        place = reserve(HTTPClient(KubeConfig.from_file()), "web-place", SPEC)
    except (KubernetesError, RequestException, RuntimeError) as error:
        sys.exit(f"cannot reserve a place: {error}")
    status = place.obj["status"]
    print(f"{place} is {status['state']['phase']} on node {status['node']} until {status['expiresAt']}.")
    print(f"Next: create a pod of this template with the label app=web in namespace {place.namespace}.")
    print(f"To give the place back: kubectl delete reservation {place} --namespace {place.namespace}")


if __name__ == "__main__":
    main()
