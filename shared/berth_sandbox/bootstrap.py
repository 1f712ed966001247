"""Owns what stands in a new sandbox: Berth's namespace, its CRDs, its two service accounts and their rules.

It does not own those CRDs and rules: they are the ones that a real cluster gets.
"""

import importlib.resources
from collections.abc import Iterable, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient
from berth_kube.errors import Call, KubeError
from berth_kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NAMESPACES,
    RESERVATIONS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_sandbox.errors import SandboxError

OPERATOR: Final = "berth-operator"
DESCHEDULER: Final = "berth-descheduler"
BERTH_ACCOUNTS: Final = (OPERATOR, DESCHEDULER)

_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_TOKEN_SECONDS: Final = 365 * 24 * 3600


class _Token(msgspec.Struct, frozen=True):
    """The part of a TokenRequest's status that is wanted."""

    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    """A TokenRequest as the server answers it."""

    status: _Token


def install_berth(client: KubeClient) -> None:
    """Make Berth's namespace, CRDs, service accounts and rules."""
    namespace = _build(NAMESPACES, DEFAULT_NAMESPACE)
    namespace["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.create(NAMESPACES, namespace)
    for manifest in read_custom_resource_definitions():
        client.create(CRDS, manifest)
    for account in BERTH_ACCOUNTS:
        client.create(SERVICE_ACCOUNTS, _build(SERVICE_ACCOUNTS, account, DEFAULT_NAMESPACE))
        rules = read_rules(account)
        _grant(client, account, rules.get("clusterRules", []), "", (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS))
        _grant(client, account, rules.get("namespaceRules", []), DEFAULT_NAMESPACE, (ROLES, ROLE_BINDINGS))


def is_installed(client: KubeClient) -> bool:
    """Tell whether the CRDs are served and pods can be made in the namespaces that a new cluster has.

    The client must not retry: a CRD's storage answers 429 with a whole second's pause while it begins.
    """
    try:
        client.list(RESERVATIONS)
        client.list(MIGRATION_PLANS)
        client.list(DESCHEDULER_POLICIES)
        for namespace in ("default", DEFAULT_NAMESPACE):
            client.get(SERVICE_ACCOUNTS, "default", namespace=namespace)
    except KubeError:
        return False
    return True


def request_token(client: KubeClient, account: str) -> str:
    """Return a token of one of Berth's service accounts that outlives the sandbox."""
    request = Request(
        Call("create", f"token of {SERVICE_ACCOUNTS.describe(account, namespace=DEFAULT_NAMESPACE)}"),
        "POST",
        SERVICE_ACCOUNTS.path(account, namespace=DEFAULT_NAMESPACE, subresource="token"),
        body=msgspec.json.encode({"spec": {"expirationSeconds": _TOKEN_SECONDS}}),
    )
    return msgspec.json.decode(client.send(request, Repeatable.ALWAYS), type=_TokenRequest).status.token


def read_custom_resource_definitions() -> tuple[dict[str, Any], ...]:
    """Return the CRDs of this version of Berth."""
    return tuple(_read_documents(_installed_folder("crds")))


def read_rules(account: str) -> dict[str, Any]:
    """Return the rules of one service account: `clusterRules` and `namespaceRules`."""
    name = account.removeprefix("berth-")
    rules: dict[str, Any] = yaml.safe_load(
        _installed_folder("rules").joinpath(f"{name}-rules.yaml").read_text(encoding="utf-8")
    )
    return rules


def _grant(
    client: KubeClient, account: str, rules: Sequence[Any], namespace: str, resources: tuple[Resource, Resource]
) -> None:
    """Give a service account rules, in one namespace or ("") in the whole cluster."""
    roles, bindings = resources
    subject = {"kind": "ServiceAccount", "name": account, "namespace": DEFAULT_NAMESPACE}
    reference = {"apiGroup": _RBAC_GROUP, "kind": roles.kind, "name": account}
    client.create(roles, {**_build(roles, account, namespace), "rules": rules})
    client.create(bindings, {**_build(bindings, account, namespace), "roleRef": reference, "subjects": [subject]})


def _build(resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
    """Return the head of a manifest."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _installed_folder(name: str) -> Traversable:
    """Return the folder of the CRDs or the rules: the wheel's copy, else the repository's original."""
    installed = importlib.resources.files("berth_sandbox").joinpath("installed", name)
    if installed.is_dir():
        return installed
    originals = {"crds": "crds", "rules": "helm/berth/files"}
    original = Path(__file__).resolve().parents[2] / originals[name]
    if not original.is_dir():
        raise SandboxError(f"Berth's {name} are missing: neither in the package nor at {original}")
    return original


def _read_documents(folder: Traversable) -> Iterable[dict[str, Any]]:
    """Return every YAML document of a folder, in the order of the files' names."""
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            yield from (document for document in yaml.safe_load_all(file.read_text(encoding="utf-8")) if document)
