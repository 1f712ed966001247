"""The stage on which a scene of `berth demo` plays: a sandbox on which both services run, and what scenes do there."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_core import DEFAULT_NAMESPACE, QUEUE_GATE, STANDING_FENCE_LABEL, PermanentError, Pod
from berth_kube import NAMESPACES, PODS, SERVICE_ACCOUNTS, KubeClient, NotFoundError
from berth_sandbox.sandbox import Sandbox

POLL_SECONDS: Final = 0.2
_LONGEST_WAIT_SECONDS: Final = 180.0


class SceneError(PermanentError):
    """What a scene shows did not happen."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene; its cluster has this many nodes of 16 cpu and 64Gi."""

    about: str
    nodes: int
    play: "Callable[[Stage], str]"


@dataclass(frozen=True, slots=True)
class Stage:
    """A sandbox on which both services run, and what scenes do there."""

    sandbox: Sandbox
    client: KubeClient
    say: Callable[[str], None]
    require_services: Callable[[], None]
    """Raises `ServiceError` if a service has ended."""

    def wait(self, claim: str, reached: Callable[[], object], *, seconds: float = _LONGEST_WAIT_SECONDS) -> float:
        """Wait until something is true, and return the seconds that took; raises `SceneError`."""
        started = time.monotonic()
        while not reached():
            self.require_services()
            if time.monotonic() - started > seconds:
                raise SceneError(f"not within {seconds:g} s: {claim}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - started

    def require(self, claim: str, is_true: object) -> None:
        """Raise `SceneError` with a claim that is not true."""
        if not is_true:
            raise SceneError(f"not true: {claim}")

    def make_namespace(self, name: str) -> None:
        """Create a namespace in which pods can be made."""
        self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

        def has_account() -> bool:
            try:
                self.client.get(SERVICE_ACCOUNTS, "default", namespace=name)
            except NotFoundError:
                return False
            return True

        self.wait(f"pods can be made in {name}", has_account)

    def create_pods(
        self,
        namespace: str,
        names: Sequence[str],
        requests: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        **spec: Any,  # noqa: ANN401 - fields of a pod
    ) -> None:
        """Create pods without a controller that request the same."""
        for pod_name in names:
            self.client.create(PODS, build_pod(pod_name, requests, annotations, **spec), namespace=namespace)

    def wait_for_gate(self, namespace: str, requests: Mapping[str, str]) -> None:
        """Wait until the API server gates new pods, which it does a moment after a webhook was registered."""

        def is_gated() -> bool:
            created_pod = self.client.create(
                PODS, build_pod("dry", requests), namespace=namespace, dry_run=True, type=Pod
            )
            return any(gate.name == QUEUE_GATE for gate in created_pod.spec.scheduling_gates)

        self.wait(f"new pods in {namespace} are gated", is_gated)

    def wait_for_fence(self, node: str) -> None:
        """Wait until a fence stands on a node: a Reservation may wait for it a moment longer."""

        def stands() -> bool:
            fences = self.client.list(
                PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod
            ).items
            return any(fence.spec.node_name == node and not fence.is_terminating for fence in fences)

        self.wait(f"a fence stands on {node}", stands)

    def end_pods(self, namespace: str, names: Sequence[str]) -> None:
        """Let pods end, as if their work were done."""
        for pod_name in names:
            self.client.delete(PODS, pod_name, namespace=namespace, grace_seconds=0)

    def running(self, namespace: str, prefix: str) -> tuple[Pod, ...]:
        """Return the running pods whose names begin so."""
        pods = self.client.list(PODS, namespace=namespace, type=Pod).items
        return tuple(pod for pod in pods if pod.metadata.name.startswith(prefix) and pod.status.phase == "Running")


def build_pod(
    name: str,
    requests: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - fields of a pod
) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": dict(requests)}}
    metadata = {"name": name, "annotations": dict(annotations or {})}
    body = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def number_names(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{pod_number}" for pod_number in range(count))
