"""What the operator's account may do to answer evictions by others, as a table of calls."""

# ruff: noqa: ANN401 - fields of webhooks may be anything

from typing import Any

from account_calls import NAMESPACE, ApiCall, Body, rule
from berth_core.names import DEFAULT_NAMESPACE, EVICTION_WEBHOOK_CONFIGURATION
from berth_kube.resources import VALIDATING_WEBHOOKS
from berth_operator.webhook.evictions import build_eviction_webhooks
from berth_sandbox.bootstrap import OPERATOR


def evictions_configuration() -> Body:
    """Return the configuration as the chart makes it, where evictions are answered."""
    kind = VALIDATING_WEBHOOKS
    name = EVICTION_WEBHOOK_CONFIGURATION
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}


def patch_evictions(**changes: Any) -> ApiCall:
    """Return the call that writes the webhooks of evictions, for a namespace that is not there."""
    config = {"url": "https://127.0.0.1:9443/review/x"}
    nowhere = {"matchLabels": {"kubernetes.io/metadata.name": "nowhere"}}
    webhooks = [one | {"namespaceSelector": nowhere} for one in build_eviction_webhooks(config, DEFAULT_NAMESPACE, ())]
    webhooks[0] |= changes
    name = EVICTION_WEBHOOK_CONFIGURATION
    return lambda targets: targets[OPERATOR].merge_patch(VALIDATING_WEBHOOKS, name, {"webhooks": webhooks})


REFUSED_EVICTIONS: dict[str, tuple[ApiCall, str]] = {
    "an eviction of whoever has the name, by the operator": (
        lambda targets: targets[OPERATOR].evict(NAMESPACE, "web", uid=""),
        "only be evicted by its uid",
    ),
    "a webhook for all evictions that keeps them": (
        patch_evictions(failurePolicy="Fail"),
        "which it holds up for 3 s at most",
    ),
    "a webhook of evictions that answers late": (
        patch_evictions(timeoutSeconds=4),
        "which it holds up for 3 s at most",
    ),
    "a webhook of evictions for deletions": (
        patch_evictions(rules=rule(resources=["pods"], operations=["DELETE"])),
        "for evictions of pods",
    ),
    "a webhook of evictions elsewhere": (
        patch_evictions(clientConfig={"url": "https://evil.example/x"}),
        "own Service or address",
    ),
}
ALLOWED_EVICTIONS: dict[str, ApiCall] = {"our webhooks of evictions": patch_evictions()}
