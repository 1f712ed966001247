"""Whether an operator answers evictions wherever pods or namespaces ask for that."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from berth_core import EVICTION_WEBHOOK_CONFIGURATION, EVICTIONS_LABEL, EVICTIONS_SURGE, Namespace, Pod, count
from berth_kube import NAMESPACES, VALIDATING_WEBHOOKS, KubeClient
from berth_sandbox.invariants import ClusterState, Invariant, Violation

_COMPONENT: Final = "app.kubernetes.io/component"


def find_unanswered_evictions(client: KubeClient, state: ClusterState) -> Iterator[Violation]:
    """Yield the namespaces, and pods elsewhere, that ask for replacements where nothing answers evictions."""
    eviction_label = f"{EVICTIONS_LABEL}={EVICTIONS_SURGE}"
    namespaces = client.list(NAMESPACES, label_selector=eviction_label, type=Namespace).items
    names = {opted_in_namespace.metadata.name for opted_in_namespace in namespaces}
    pods = [pod for pod in state.pods if _asks_by_itself(pod) and pod.metadata.namespace not in names]
    if not (namespaces or pods) or not (why := _why_unanswered(client, state)):
        return
    for asking_namespace in namespaces:
        yield Violation(Invariant.EVICTIONS_UNANSWERED, f"namespace {asking_namespace.metadata.name}", why)
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        asking_pods = [pod for pod in pods if pod.metadata.namespace == namespace]
        text = f"{count(len(asking_pods), 'pod')} with the label {eviction_label}: {why}"
        yield Violation(Invariant.EVICTIONS_UNANSWERED, f"namespace {namespace}", text)


def _asks_by_itself(pod: Pod) -> bool:
    return pod.metadata.labels.get(EVICTIONS_LABEL) == EVICTIONS_SURGE and not pod.is_terminal


def _why_unanswered(client: KubeClient, state: ClusterState) -> str:
    """Return why evictions are not answered, "" if they are."""
    configurations: Sequence[dict[str, Any]] = client.list(VALIDATING_WEBHOOKS).items
    configuration = next(
        (
            webhook_configuration
            for webhook_configuration in configurations
            if webhook_configuration["metadata"]["name"] == EVICTION_WEBHOOK_CONFIGURATION
        ),
        None,
    )
    if configuration is None:
        return f"there is no ValidatingWebhookConfiguration {EVICTION_WEBHOOK_CONFIGURATION}: it is switched off"
    webhooks = configuration.get("webhooks") or ()
    if not webhooks:
        return "no operator has registered its webhooks"
    service = webhooks[0]["clientConfig"].get("service")
    operator_pods = [pod for pod in state.pods if service and pod.metadata.namespace == service["namespace"]]
    is_ready = any(pod.is_ready for pod in operator_pods if pod.metadata.labels.get(_COMPONENT) == "operator")
    return "" if is_ready or not service else f"no operator is Ready in the namespace {service['namespace']}"
