"""The webhooks that ask about evictions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_core import EVICTIONS_EVICT, EVICTIONS_LABEL, EVICTIONS_SURGE

PATH_OF_NAMESPACES: Final = "/evictions/namespaces"
PATH_OF_PODS: Final = "/evictions/pods"
WEBHOOK_SECONDS: Final = 3
"""How long the API server waits for an answer; without one the eviction passes."""


def build_eviction_webhooks(
    client_config: Mapping[str, Any], own_namespace: str, exempt: Sequence[str]
) -> list[dict[str, Any]]:
    """Return two webhooks: one for the namespaces that ask for replacements, one for all others, where pods may ask.

    The second is called for every eviction there, since a selector cannot look at the pod: the object of the request is
    the Eviction. `exempt` are users whose evictions are not asked about.
    """
    not_own_namespace = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [own_namespace]}
    expression = {"key": EVICTIONS_LABEL, "values": [EVICTIONS_SURGE]}
    scopes = (
        ("namespaces", PATH_OF_NAMESPACES, {**expression, "operator": "In"}),
        ("pods", PATH_OF_PODS, {**expression, "operator": "NotIn", "values": [EVICTIONS_SURGE, EVICTIONS_EVICT]}),
    )
    # Conditions spare the call altogether (KEP-3716).
    conditions = [{"name": "is-no-dry-run", "expression": "!(has(request.dryRun) && request.dryRun)"}]
    if exempt:
        names = ", ".join(f"'{namespace}'" for namespace in exempt)
        conditions.append({"name": "is-not-exempt", "expression": f"!(request.userInfo.username in [{names}])"})
    return [
        {
            "name": f"{name}.evictions.berth.volcano.sh",
            "admissionReviewVersions": ["v1"],
            # Anything else but None would have the API server refuse every dry run of an eviction.
            "sideEffects": "NoneOnDryRun",
            # An operator that is down must not stop drains, nor the cluster autoscaler.
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": WEBHOOK_SECONDS,
            "clientConfig": _with_path(client_config, path),
            "namespaceSelector": {"matchExpressions": [not_own_namespace, scope]},
            "matchConditions": conditions,
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
            ],
        }
        for name, path, scope in scopes
    ]


def _with_path(client_config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a clientConfig that leads to a path below the webhook's own."""
    if "service" in client_config:
        service = client_config["service"]
        return {**client_config, "service": {**service, "path": service["path"] + path}}
    return {**client_config, "url": client_config["url"] + path}
