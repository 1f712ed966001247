"""Contents of a new sandbox: namespace, CRDs, service accounts, rules and policies."""

import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from berth_core import DEFAULT_NAMESPACE, PLACEHOLDER_IMAGE, REPLACEMENT_TRIAL
from berth_core.decoding import decode_json
from berth_kube import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
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
    Call,
    KubeClient,
    KubeError,
    Repeatable,
    Request,
    Resource,
)
from berth_sandbox.errors import SandboxError
from berth_sandbox.ports import LOOPBACK

OPERATOR: Final = "berth-operator"
DESCHEDULER: Final = "berth-descheduler"
BERTH_ACCOUNTS: Final = (OPERATOR, DESCHEDULER)
TRIES_REPLACEMENTS: Final = "berth-descheduler-tries-replacements"
"""Name of the roles by which the descheduler acts as the account that makes pods by dry run."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's own takes seconds for the CRDs."""
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_KUBELET_POLICY: Final = "sandbox-kubelets"
# Nothing renews the token in a kubeconfig.
_TOKEN_SECONDS: Final = 365 * 24 * 3600
_RELEASE: Final = "berth"
_POLICY_VALUES: Final[dict[str, str | bool | list[str]]] = {
    "NAMESPACE": DEFAULT_NAMESPACE,
    "WEBHOOK_SERVICE": "berth-webhook",
    "IMAGES": [PLACEHOLDER_IMAGE],
    "WEBHOOK_ADDRESSES": [f"https://{LOOPBACK}:"],
    "EVICTIONS": True,
    "NODE_ANNOTATIONS": ["cluster-autoscaler.kubernetes.io/scale-down-disabled"],
    "TEMPLATE_FIELDS": [],
    "RESERVATIONS_WITHOUT_OWNERS": True,
}
"""Values that the chart fills in; a sandbox's operator listens on a port of its own choice."""


class _Token(msgspec.Struct, frozen=True):
    """The used part of a TokenRequest's status."""

    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    """A TokenRequest as the server answers it."""

    status: _Token


def install_berth(client: KubeClient) -> None:
    """Create Berth's namespace, CRDs, service accounts, rules and admission policies.

    All but the CRDs are as if helm had applied them, so that `helm install` takes them over.
    """
    namespace = _build(NAMESPACES, DEFAULT_NAMESPACE)
    # The strictest Pod Security Standard, so that a placeholder which it would refuse in a cluster is refused here as
    # well.
    namespace["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.create(NAMESPACES, namespace)
    for manifest in read_custom_resource_definitions():
        client.create(CRDS, manifest)
    for account in BERTH_ACCOUNTS:
        _apply(client, SERVICE_ACCOUNTS, _build(SERVICE_ACCOUNTS, account, DEFAULT_NAMESPACE))
        rules = read_rules(account)
        everywhere = [*rules["clusterRules"], *rules.get("dryRunRules", [])]
        _grant(client, account, everywhere, "", (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS))
        _grant(client, account, rules["namespaceRules"], DEFAULT_NAMESPACE, (ROLES, ROLE_BINDINGS))
    # A policy without a binding has no effect, and a new one takes a moment to reach the API server's admission
    # (kubernetes/kubernetes#132502).
    for policy, binding in build_admission_policies():
        _apply(client, ADMISSION_POLICIES, policy)
        _apply(client, ADMISSION_POLICY_BINDINGS, binding)
    _let_replacements_be_tried(client)


def _let_replacements_be_tried(client: KubeClient) -> None:
    """Create the account in whose name the descheduler makes pods by dry run.

    The policy that keeps it to dry runs exists already: no moment is left in which the account may create pods.
    """
    rules = read_rules(REPLACEMENT_TRIAL)
    _apply(client, SERVICE_ACCOUNTS, _build(SERVICE_ACCOUNTS, REPLACEMENT_TRIAL, DEFAULT_NAMESPACE))
    roles = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
    _grant(client, REPLACEMENT_TRIAL, rules["accountClusterRules"], "", roles)
    _grant(client, DESCHEDULER, rules["userClusterRules"], "", roles, name=TRIES_REPLACEMENTS)
    in_namespace = (ROLES, ROLE_BINDINGS)
    _grant(client, DESCHEDULER, rules["userNamespaceRules"], DEFAULT_NAMESPACE, in_namespace, name=TRIES_REPLACEMENTS)


def _apply(client: KubeClient, resource: Resource, body: dict[str, Any]) -> None:
    """Apply a manifest under helm's field manager, with the labels and annotations of objects of a release."""
    marks = {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": _RELEASE,
            "meta.helm.sh/release-namespace": DEFAULT_NAMESPACE,
        },
    }
    name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
    request = Request(
        Call("apply", resource.describe(name, namespace=namespace)),
        "PATCH",
        resource.path(name, namespace=namespace),
        (("fieldManager", "helm"), ("force", "true")),
        msgspec.json.encode({**body, "metadata": {**body["metadata"], **marks}}),
        # Apply has no content type for JSON, which is YAML as well.
        "application/apply-patch+yaml",
    )
    client.send(request, Repeatable.ALWAYS)


def restrict_kubelets(client: KubeClient, user: str) -> None:
    """Let the user that plays the kubelets delete terminating pods only.

    A kubelet deletes a pod with its uid as precondition (kubernetes/kubernetes#25224). kwok gives none, and now and
    then deletes a pod twice: then another pod may have the name.
    """
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "account", "expression": f"request.userInfo.username == '{user}'"}],
        "validations": [
            {"expression": "has(oldObject.metadata.deletionTimestamp)", "message": "the pod is not terminating"}
        ],
    }
    client.create(ADMISSION_POLICIES, {**_build(ADMISSION_POLICIES, _KUBELET_POLICY), "spec": spec})
    client.create(ADMISSION_POLICY_BINDINGS, _build_policy_binding(_KUBELET_POLICY))


def install_definitions(client: KubeClient, folder: Path) -> tuple[Resource, ...]:
    """Create the CRDs whose manifests lie in a folder; return what they define."""
    return tuple(_defined(client.create(CRDS, manifest)) for manifest in _read_documents(folder))


def _defined(definition: Mapping[str, Any]) -> Resource:
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    names = spec["names"]
    return Resource(spec["group"], version, names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced")


def is_installed(client: KubeClient) -> bool:
    """Return whether the CRDs are served and pods can be created in the namespaces that exist from the start.

    The client must not retry: a CRD's storage answers 429 with Retry-After 1 while it starts, and a whole second is
    long here.
    """
    if not all(takes_pods(client, namespace) for namespace in ("default", DEFAULT_NAMESPACE)):
        return False
    return are_served(client, (RESERVATIONS, MIGRATION_PLANS, DESCHEDULER_POLICIES))


def takes_pods(client: KubeClient, namespace: str) -> bool:
    """Return whether pods can be created in a namespace, which needs its default service account."""
    try:
        client.get(SERVICE_ACCOUNTS, "default", namespace=namespace)
    except KubeError:
        return False
    return True


def are_served(client: KubeClient, resources: Iterable[Resource]) -> bool:
    """Return whether the API server lists all of these; the client must not retry."""
    try:
        for resource in resources:
            client.list(resource)
    except KubeError:
        return False
    return True


def request_token(client: KubeClient, account: str) -> str:
    """Return a service account's token that outlives the sandbox."""
    request = Request(
        Call("create", f"token of {SERVICE_ACCOUNTS.describe(account, namespace=DEFAULT_NAMESPACE)}"),
        "POST",
        SERVICE_ACCOUNTS.path(account, namespace=DEFAULT_NAMESPACE, subresource="token"),
        body=msgspec.json.encode({"spec": {"expirationSeconds": _TOKEN_SECONDS}}),
    )
    return decode_json(client.send(request, Repeatable.ALWAYS), _TokenRequest).status.token


def read_custom_resource_definitions() -> tuple[dict[str, Any], ...]:
    """Return the CRDs of this version of Berth."""
    return tuple(_read_documents(_installed_folder("crds")))


def read_rules(account: str) -> dict[str, Any]:
    """Return a service account's rules: `clusterRules`, `namespaceRules`, `dryRunRules`, `evictionRules`."""
    name = account.removeprefix("berth-")
    rules: dict[str, Any] = yaml.safe_load(
        _installed_folder("rules").joinpath(f"{name}-rules.yaml").read_text(encoding="utf-8")
    )
    return rules


def build_admission_policies() -> tuple[tuple[dict[str, Any], dict[str, Any]], ...]:
    """Return the accounts' admission policies as the chart has them, each with its binding."""
    text = _installed_folder("rules").joinpath("admission-policies.yaml").read_text(encoding="utf-8")
    for name, value in _POLICY_VALUES.items():
        text = text.replace(f"${{{name}}}", json.dumps(value))
    return tuple(
        (_build_policy(entry), _build_policy_binding(entry["name"], entry.get("actions", ["Deny"])))
        for entry in yaml.safe_load(text)
    )


def _build_policy(entry: dict[str, Any]) -> dict[str, Any]:
    compared = [("account", "==", entry["account"])] if "account" in entry else []
    compared += [(f"not-{account}", "!=", account) for account in entry.get("besides", ())]
    conditions = [
        {"name": name, "expression": f"request.userInfo.username {comparison} '{_user(account)}'"}
        for name, comparison, account in compared
    ]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": entry["rules"]},
        "matchConditions": [*conditions, *entry.get("conditions", ())],
        **({"variables": entry["variables"]} if "variables" in entry else {}),
        "validations": entry["validations"],
    }
    return {**_build(ADMISSION_POLICIES, entry["name"]), "spec": spec}


def _user(account: str) -> str:
    """Return the user name of a service account."""
    return f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account}"


def _build_policy_binding(policy: str, actions: Sequence[str] = ("Deny",)) -> dict[str, Any]:
    spec = {"policyName": policy, "validationActions": [*actions]}
    return {**_build(ADMISSION_POLICY_BINDINGS, policy), "spec": spec}


def _grant(
    client: KubeClient,
    account: str,
    rules: Sequence[Any],
    namespace: str,
    resources: tuple[Resource, Resource],
    *,
    name: str = "",
) -> None:
    """Grant rules to a service account by a role, in one namespace or, for "", in the whole cluster.

    The role has the account's name unless another is given.
    """
    role = name or account
    roles, bindings = resources
    subject = {"kind": "ServiceAccount", "name": account, "namespace": DEFAULT_NAMESPACE}
    reference = {"apiGroup": _RBAC_GROUP, "kind": roles.kind, "name": role}
    _apply(client, roles, {**_build(roles, role, namespace), "rules": rules})
    grant = {"roleRef": reference, "subjects": [subject]}
    _apply(client, bindings, {**_build(bindings, role, namespace), **grant})


def _build(resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _installed_folder(name: str) -> Traversable:
    """Return the folder of CRDs or rules: the wheel's copy, else the repository's original."""
    installed = importlib.resources.files("berth_sandbox").joinpath("installed", name)
    if installed.is_dir():
        return installed
    originals = {"crds": "crds", "rules": "helm/berth/files"}
    original = Path(__file__).resolve().parents[2] / originals[name]
    if not original.is_dir():
        raise SandboxError(f"Berth's {name} are missing: neither in the package nor at {original}")
    return original


def _read_documents(folder: Traversable | Path) -> Iterable[dict[str, Any]]:
    """Yield every YAML document of a folder, ordered by file name."""
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            text = file.read_text(encoding="utf-8")
            yield from (document for document in yaml.load_all(text, _LOADER) if document)
