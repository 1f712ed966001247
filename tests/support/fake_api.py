"""An API server in memory for the few calls of one test; the clock-work of a real one is in the sandbox.

It does not check schemas or rights: the cluster tests do.
"""
# ruff: noqa: ANN401, A002 - it takes what the client takes

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from berth_core.decoding import convert
from berth_kube.client import KubeClient
from berth_kube.errors import (
    AlreadyExistsError,
    Call,
    ConflictError,
    Failure,
    InvalidObjectError,
    KubeError,
    NotFoundError,
)
from berth_kube.listing import Listing
from berth_kube.resources import QUEUES, Resource
from builders import NOON_TEXT
from json_patches import apply

Key = tuple[str, str, str]


def error(kind: type[KubeError], message: str = "refused", **rest: Any) -> KubeError:
    """An error as the client raises it."""
    return kind(Call("change", "pods default/web-0"), Failure(status_code=400, reason="Test", message=message), **rest)


@dataclass
class FakeApi:
    """Objects by plural, namespace and name; `calls` tells what was asked, in order."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    identifies: bool = False
    """Whether objects get a uid and a time of creation, as from a real API server."""
    faults: dict[str, KubeError] = field(default_factory=dict)
    """A call, as it is told in `calls`, to the error that it raises."""
    on_dry_run: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body
    version: int = 100

    def as_client(self) -> KubeClient:
        return cast("KubeClient", self)

    def apart(self, _connections: int) -> KubeClient:
        return self.as_client()

    def within(self, _seconds: float) -> KubeClient:
        return self.as_client()

    def put(self, resource: Resource, body: Mapping[str, Any]) -> None:
        self.objects[self._key(resource, body["metadata"]["name"], body["metadata"].get("namespace"))] = self._stamped(
            dict(body)
        )

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: Any = dict) -> Any:
        self._tell("get", resource, name)
        return self._decoded(self._find(resource, name, namespace), type)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: Any = dict,
    ) -> Listing[Any]:
        self._tell("list", resource, field_selector or label_selector)
        items = [
            self._decoded(body, type)
            for (plural, within, _), body in self.objects.items()
            if plural == resource.plural and namespace in (None, within) and has_fields(body, field_selector)
            if plural != QUEUES.plural or body.get("apiVersion", resource.api_version) == resource.api_version
        ]
        return Listing(tuple(items), str(self.version))

    def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        strict: bool = False,  # noqa: ARG002 - it knows no fields
        type: Any = dict,
    ) -> Any:
        name = body["metadata"]["name"]
        self._tell("dry-run" if dry_run else "create", resource, name)
        if dry_run:
            return self._decoded(self.on_dry_run(copy.deepcopy(dict(body))), type)
        key = self._key(resource, name, namespace or body["metadata"].get("namespace"))
        if key in self.objects:
            raise error(AlreadyExistsError)
        made = self._stamped(copy.deepcopy(dict(body)))
        if self.identifies:
            made["metadata"] = {"uid": f"uid-{name}-{self.version}", "creationTimestamp": NOON_TEXT} | made["metadata"]
        self.objects[key] = made
        return self._decoded(made, type)

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str = "",
        type: Any = dict,
    ) -> Any:
        self._tell("merge", resource, f"{name}/{subresource}" if subresource else name)
        found = self._find(resource, name, namespace)
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise error(ConflictError)
        _merge(found, body)
        return self._decoded(self._stamped(found), type)

    def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Any,
        *,
        namespace: str | None = None,
        subresource: str = "",
        type: Any = dict,
    ) -> Any:
        self._tell("patch", resource, f"{name}/{subresource}" if subresource else name)
        try:
            changed = apply(operations, self._find(resource, name, namespace))
        except LookupError:
            raise error(InvalidObjectError, "a test failed") from None
        self.objects[self._key(resource, name, namespace)] = self._stamped(changed)
        return self._decoded(changed, type)

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None, **_: Any) -> None:
        self._tell("delete", resource, name)
        self._find(resource, name, namespace)
        del self.objects[self._key(resource, name, namespace)]

    def _tell(self, verb: str, resource: Resource, name: str) -> None:
        call = f"{verb} {resource.plural} {name}"
        self.calls.append(call)
        if call in self.faults:
            raise self.faults[call]

    def _find(self, resource: Resource, name: str, namespace: str | None) -> dict[str, Any]:
        try:
            return self.objects[self._key(resource, name, namespace)]
        except KeyError:
            raise error(NotFoundError) from None

    def _key(self, resource: Resource, name: str, namespace: str | None) -> Key:
        return resource.plural, namespace or "", name

    def _stamped(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        body["metadata"] = dict(body["metadata"]) | {"resourceVersion": str(self.version)}
        return body

    def _decoded(self, body: dict[str, Any], type: Any) -> Any:
        return copy.deepcopy(body) if type is dict else convert(msgspec.to_builtins(body), type)


def _merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            inner = dict(target.get(key) or {})
            _merge(inner, value)
            target[key] = inner
        else:
            target[key] = value


_SELECTABLE: Final = ("metadata.name", "spec.nodeName", "status.phase")


def has_fields(body: Mapping[str, Any], selector: str) -> bool:
    """Return whether an object meets a field selector such as `status.phase=Pending,spec.nodeName=`."""
    for requirement in filter(None, selector.split(",")):
        is_excluded = "!=" in requirement
        path, _, wanted = requirement.partition("!=" if is_excluded else "=")
        assert path in _SELECTABLE, f"the fakes know no field selector {requirement!r}"
        part, _, name = path.partition(".")
        if (body.get(part, {}).get(name, "") == wanted) is is_excluded:
            return False
    return True
