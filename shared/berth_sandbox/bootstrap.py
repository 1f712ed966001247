"""Owns what stands in a new sandbox: Berth's namespace, its CRDs, its two service accounts and their rules.

It does not own those CRDs and rules: they are the ones that a real cluster gets.
"""

import importlib.resources
from collections.abc import Iterable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import yaml

from berth_core.names import DEFAULT_NAMESPACE
from berth_sandbox.errors import SandboxError
from berth_sandbox.raw_api import RawApi

OPERATOR: Final = "berth-operator"
DESCHEDULER: Final = "berth-descheduler"
SERVICE_ACCOUNTS: Final = (OPERATOR, DESCHEDULER)

_RBAC: Final = "rbac.authorization.k8s.io"
_TOKEN_SECONDS: Final = 365 * 24 * 3600


def install_berth(api: RawApi) -> None:
    """Make Berth's namespace, CRDs, service accounts and rules."""
    api.create("/api/v1/namespaces", _build("v1", "Namespace", DEFAULT_NAMESPACE))
    for manifest in read_custom_resource_definitions():
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest)
    for account in SERVICE_ACCOUNTS:
        body = _build("v1", "ServiceAccount", account, DEFAULT_NAMESPACE)
        api.create(f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/serviceaccounts", body)
        _grant(api, account)


def is_installed(api: RawApi) -> bool:
    """Tell whether the CRDs are served and pods can be made in the namespaces that a new cluster has."""
    paths = (
        "/apis/batch.volcano.sh/v1alpha1/reservations",
        "/apis/berth.volcano.sh/v1alpha1/migrationplans",
        "/api/v1/namespaces/default/serviceaccounts/default",
        f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/serviceaccounts/default",
    )
    return all(api.serves(path) for path in paths)


def request_token(api: RawApi, account: str) -> str:
    """Return a token of one of Berth's service accounts that outlives the sandbox."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    made = api.create(f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/serviceaccounts/{account}/token", body)
    return str(made["status"]["token"])


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


def _grant(api: RawApi, account: str) -> None:
    """Give a service account its rules, in the whole cluster and in Berth's own namespace."""
    rules = read_rules(account)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": DEFAULT_NAMESPACE}
    for kind, granted, namespace in (
        ("ClusterRole", rules.get("clusterRules", []), ""),
        ("Role", rules.get("namespaceRules", []), DEFAULT_NAMESPACE),
    ):
        below = f"/apis/{_RBAC}/v1" + (f"/namespaces/{namespace}" if namespace else "")
        role = _build(f"{_RBAC}/v1", kind, account, namespace)
        api.create(f"{below}/{kind.lower()}s", {**role, "rules": granted})
        binding = _build(f"{_RBAC}/v1", f"{kind}Binding", account, namespace)
        reference = {"apiGroup": _RBAC, "kind": kind, "name": account}
        api.create(f"{below}/{kind.lower()}bindings", {**binding, "roleRef": reference, "subjects": [subject]})


def _build(api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    """Return the head of a manifest."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


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
