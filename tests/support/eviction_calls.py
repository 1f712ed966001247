"""What the operator's account may do to answer evictions by others, as a table of calls, and its rights to do so."""

# ruff: noqa: ANN401 - fields of webhooks may be anything

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from account_calls import NAMESPACE, ApiCall, Body, rule
from berth_core.names import DEFAULT_NAMESPACE, EVICTION_WEBHOOK_CONFIGURATION
from berth_kube.client import KubeClient
from berth_kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, VALIDATING_WEBHOOKS
from berth_kube.reviews import Access, Subject, review_access
from berth_operator.capabilities.evictions.manifests import build_eviction_webhooks
from berth_sandbox.bootstrap import OPERATOR, read_rules
from waiting import eventually


def evictions_configuration() -> Body:
    """Return the configuration as the chart makes it, where evictions are answered."""
    kind = VALIDATING_WEBHOOKS
    name = EVICTION_WEBHOOK_CONFIGURATION
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}


RBAC: Final = "rbac.authorization.k8s.io"
ROLE: Final = "berth-operator-evictions"


@contextmanager
def answered_evictions(client: KubeClient) -> Iterator[None]:
    """Make what the chart adds where evictions are answered, and take it away."""
    kind, metadata = CLUSTER_ROLES, {"name": ROLE}
    role = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    binding = {"apiVersion": kind.api_version, "kind": CLUSTER_ROLE_BINDINGS.kind, "metadata": metadata}
    subject = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": DEFAULT_NAMESPACE}
    reference = {"apiGroup": RBAC, "kind": kind.kind, "name": ROLE}
    client.create(CLUSTER_ROLES, {**role, "rules": read_rules(OPERATOR)["evictionRules"]})
    client.create(CLUSTER_ROLE_BINDINGS, {**binding, "roleRef": reference, "subjects": [subject]})
    client.create(VALIDATING_WEBHOOKS, evictions_configuration())
    try:
        eventually("the operator has the right to evict", lambda: may_evict(client), seconds=60)
        yield
    finally:
        client.delete(VALIDATING_WEBHOOKS, EVICTION_WEBHOOK_CONFIGURATION)
        client.delete(CLUSTER_ROLE_BINDINGS, ROLE)
        client.delete(CLUSTER_ROLES, ROLE)


def may_evict(client: KubeClient) -> bool:
    """Return whether the authorizer knows the operator's role for evictions."""
    account = Subject(f"system:serviceaccount:{DEFAULT_NAMESPACE}:{OPERATOR}")
    return review_access(client, account, Access("patch", VALIDATING_WEBHOOKS, EVICTION_WEBHOOK_CONFIGURATION))


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
