"""The chart as the tests use it: rendered by helm, and put on a sandbox."""

# ruff: noqa: ANN401 - values and fields of API objects may be anything

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from berth_kube.client import KubeClient
from berth_kube.errors import Call, NotFoundError
from berth_kube.resources import Resource
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from conventions.generate_copies import CHART

RELEASE: Final = "berth"
OLDEST_KUBERNETES: Final = "1.31.0"
SERVICES: Final = ("operator", "descheduler")
OWN_LABEL: Final = f"app.kubernetes.io/instance={RELEASE}"

APPLY: Final = "application/apply-patch+yaml"
_FAST: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A rendering has thousands of lines, and one test reads dozens of them."""
_STRICTLY: Final = (("dryRun", "All"), ("fieldValidation", "Strict"), ("fieldManager", "test"), ("force", "true"))
_PLURALS: Final = {
    "NetworkPolicy": "networkpolicies",
    "DeschedulerPolicy": "deschedulerpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}

Manifest = dict[str, Any]
Values = Mapping[str, Any]


class HelmError(AssertionError):
    """What helm said when it refused."""


@dataclass(frozen=True)
class Helm:
    """Runs helm with a home of its own."""

    command: Path
    home: Path

    def run(self, *arguments: str, values: Values | None = None) -> str:
        """Return what helm prints; raises `HelmError` with its words."""
        folders = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        given = [] if values is None else ["--values", "-"]
        done = subprocess.run(
            [self.command, *arguments, *given],
            input=None if values is None else yaml.safe_dump(dict(values)),
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.home), **folders},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise HelmError(done.stdout + done.stderr)
        return done.stdout

    def render(self, values: Values, *, namespace: str = "default") -> list[Manifest]:
        """Return the objects that the chart makes, without the CRDs."""
        wanted = ("--namespace", namespace, "--kube-version", OLDEST_KUBERNETES)
        text = self.run("template", RELEASE, str(CHART), *wanted, values=values)
        return [document for document in yaml.load_all(text, _FAST) if document]

    def notes(self, values: Values) -> str:
        """Return what helm tells whoever installs the chart."""
        text = self.run("install", RELEASE, str(CHART), "--dry-run=client", values=values)
        return text.partition("\nNOTES:\n")[2]


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


def container(manifests: list[Manifest], service: str) -> Manifest:
    """Return the one container of a service's Deployment."""
    deployed = [m["spec"]["template"]["spec"] for m in manifests if m["kind"] == "Deployment"]
    (found,) = (one for spec in deployed for one in spec["containers"] if one["name"] == service)
    return dict(found)


def is_hook(manifest: Manifest) -> bool:
    """Return whether helm makes an object for `helm test` alone."""
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


def options(manifests: list[Manifest], service: str) -> dict[str, list[str]]:
    """Return the options that a service is started with, and what each is given."""
    found: dict[str, list[str]] = {}
    for argument in container(manifests, service)["args"]:
        name, _, value = argument.partition("=")
        found.setdefault(name, []).append(value)
    return found


def resource_of(manifest: Manifest) -> Resource:
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"]
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return Resource(group, version, plural, kind, namespaced="namespace" in manifest["metadata"])


def apply_strictly(client: KubeClient, manifest: Manifest) -> None:
    """Have the API server check an object without keeping it; unknown, doubled and misplaced fields are errors."""
    metadata = manifest["metadata"]
    path = resource_of(manifest).path(metadata["name"], namespace=metadata.get("namespace"))
    call = Call("apply", f"{manifest['kind']} {metadata['name']}")
    request = Request(call, "PATCH", path, _STRICTLY, msgspec.json.encode(manifest), APPLY)
    client.send(request, Repeatable.UNLESS_ACTED)


def served(client: KubeClient) -> Iterator[Resource]:
    """Yield every kind of object that can be listed, in its preferred version."""
    groups = _read(client, "/apis")["groups"]
    paths = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    for path in paths:
        group, _, version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
        try:
            kinds = _read(client, path)["resources"]
        except NotFoundError:  # its CRD has just been deleted
            continue
        for kind in kinds:
            if "list" in kind["verbs"] and "/" not in kind["name"]:
                yield Resource(group, version, kind["name"], kind["kind"], namespaced=kind["namespaced"])


def existing(client: KubeClient, label_selector: str = "") -> set[str]:
    """Return every object that exists, as `KIND NAMESPACE/NAME`, without events."""
    found: set[str] = set()
    for resource in served(client):
        if resource.kind == "Event":
            continue
        try:
            items = client.list(resource, label_selector=label_selector).items
        except NotFoundError:
            continue
        found |= {shown({**item, "kind": resource.kind}) for item in items}
    return found


def shown(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{manifest['kind']} {metadata.get('namespace', '')}/{metadata['name']}"


def _read(client: KubeClient, path: str) -> Any:
    return msgspec.json.decode(client.send(Request(Call("read", path), "GET", path), Repeatable.ALWAYS))
