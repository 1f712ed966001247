"""An API server in memory, with the methods of `berth_kube.client.KubeClient`.

It answers as a real one does in what it knows: versions, conflicts, preconditions, selectors, the status subresource,
dry runs and watches. It checks neither schemas nor rights: the tests on a control plane do.
"""
# ruff: noqa: ANN401, A002 - the client's own names; what it keeps is raw

import queue
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self, cast

import msgspec

from berth_core.decoding import convert
from berth_kube.client import KubeClient
from berth_kube.errors import (
    AlreadyExistsError,
    Call,
    ConflictError,
    Failure,
    GoneError,
    InvalidObjectError,
    KubeError,
    NotFoundError,
)
from berth_kube.listing import Listing
from berth_kube.resources import MIGRATION_PLANS, PODS, VOLCANO_JOBS, VOLCANO_POD_GROUPS, VOLCANO_QUEUES, Resource
from berth_kube.sightings import Sightings
from berth_kube.watch_items import Changed, Listed, Removed
from berth_kube.watching import WatchPace, WatchSettings
from builders import NOON_TEXT
from json_patches import apply

Raw = dict[str, Any]
Key = tuple[str, str]
"""Namespace, empty for what is in none, and name."""
Fault = Exception | list[Exception]

_RBAC_VERBS: Final = {"dry-run": "create", "merge": "patch"}
_KEPT_AS: Final = {
    VOLCANO_JOBS: "volcanojobs",
    VOLCANO_POD_GROUPS: "volcanopodgroups",
    VOLCANO_QUEUES: "volcanoqueues",
}
_BUILT_IN_GROUPS: Final = ("", "apps", "autoscaling", "batch", "policy")
_POLL_SECONDS: Final = 0.02


class ApiCall(str):
    """What was asked, as `merge pods web-0/status`, `dry-run pods web-0` or `list pods app=web`."""

    __slots__ = ()

    @property
    def verb(self) -> str:
        """Return the verb as RBAC writes it: a dry run is a creation, and a merge a patch."""
        written = self.split(" ")[0]
        return _RBAC_VERBS.get(written, written)

    @property
    def plural(self) -> str:
        return self.split(" ")[1]

    @property
    def name(self) -> str:
        """Return the name of the object; of a list it is the selector."""
        return self.split(" ", 2)[2]


def kept_as(resource: Resource) -> str:
    """Return the plural of a kind, or another name where two kinds share one."""
    return _KEPT_AS.get(resource, resource.plural)


def error(kind: type[KubeError], message: str = "refused", **rest: Any) -> KubeError:
    """Return an error as the client raises it."""
    return kind(Call("change", "pods default/web-0"), Failure(status_code=400, reason="Test", message=message), **rest)


@dataclass(frozen=True, slots=True)
class _Watcher:
    plural: str
    selects: Callable[[Raw], bool]
    events: queue.Queue[tuple[float, Any]]
    type: Any


@dataclass(eq=False)
class ApiServerInMemory:
    """Keeps raw objects by plural, and within it by namespace and name.

    A test that reads or writes in several steps beside other threads holds the `lock`.
    """

    objects: defaultdict[str, dict[Key, Raw]] = field(default_factory=lambda: defaultdict(dict))
    calls: list[ApiCall] = field(default_factory=list)
    """What was asked, in order."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """What calls raise: a call as in `calls`, or a verb and a plural for all of these, to an error or one for each."""
    before: Callable[[str, str, str], None] = lambda *_: None
    """Told of the verb, the plural and the name of each call before it is answered."""
    on_dry_run: Callable[[Raw], Raw] = lambda body: body
    watch_delays: dict[str, float] = field(default_factory=dict)
    """By how many seconds a watch of a kind, by its plural, lags behind."""
    now: Callable[[], str] = lambda: NOON_TEXT
    """The time at which objects are created and deleted."""
    pods_linger: bool = False
    """Whether a deleted pod with a node stays, marked, until something does what a kubelet does."""
    version: int = 100
    """The resourceVersion of the latest write."""
    past_versions: dict[str, Raw] = field(default_factory=dict, repr=False)
    """What was written under each resourceVersion, of plans."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    watchers: list[_Watcher] = field(default_factory=list)
    sightings: Sightings = field(default_factory=Sightings, repr=False)

    @property
    def server_url(self) -> str:
        return "https://in.memory"

    def as_client(self) -> KubeClient:
        return cast("KubeClient", self)

    def apart(self, _connections: int) -> KubeClient:
        return self.as_client()

    def within(self, _seconds: float) -> KubeClient:
        return self.as_client()

    def close(self) -> None:
        """There are no connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    # What a test does beside the calls

    def put(self, resource: Resource, body: Mapping[str, Any]) -> Raw:
        """Write an object with its status, whatever there is."""
        return self._store(kept_as(resource), dict(body), may_add=True)

    def remove(self, resource: Resource, raw: Raw) -> None:
        """Take an object away at once."""
        plural, metadata = kept_as(resource), raw["metadata"]
        with self.lock:
            removed = self.objects[plural].pop((metadata.get("namespace", ""), metadata["name"]))
            self.version += 1
            self._announce(plural, removed, Removed)

    def raw(self, resource: Resource) -> list[Raw]:
        """Return all objects of a kind, also while threads are changing them."""
        with self.lock:
            return list(self.objects[kept_as(resource)].values())

    # The client

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: Any = dict) -> Any:
        self._called("get", resource, name)
        with self.lock, self._noting_absence(resource, namespace, name):
            return self._seen(resource, self._find(resource, name, namespace), type)

    def get_version(self, resource: Resource, name: str, resource_version: str, *, type: Any = dict, **_: Any) -> Any:
        self._called("list", resource, f"metadata.name={name}")
        with self.lock:
            if resource_version not in self.past_versions:
                raise _refusal(GoneError, "list", resource, name, "too old")
            past_raw = self.past_versions[resource_version]
            return None if past_raw["metadata"]["name"] != name else decoded(past_raw, type)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: Any = dict,
        **_: Any,
    ) -> Listing[Any]:
        self._called("list", resource, field_selector or label_selector)
        selects = selector(namespace, label_selector, field_selector)
        with self.lock:
            chosen = [raw for _, raw in sorted(self.objects[kept_as(resource)].items()) if selects(raw)]
            return Listing(tuple(decoded(raw, type) for raw in chosen), str(self.version))

    def list_pages(self, resource: Resource, *, type: Any = dict) -> Listing[Any]:
        return self.list(resource, type=type)

    def watch(
        self,
        resource: Resource,
        *,
        stop: threading.Event,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: Any = dict,
        settings: WatchSettings | WatchPace | None = None,
        since: Listing[Any] | None = None,
        on_answer: Callable[[], object] = lambda: None,
    ) -> Iterator[Any]:
        del settings  # there are no connections
        plural, selects = kept_as(resource), selector(namespace, label_selector, field_selector)
        watcher = _Watcher(plural, selects, queue.Queue(), type)
        with self.lock:
            listed = tuple(decoded(raw, type) for raw in self.objects[plural].values() if selects(raw))
            version = str(self.version)
            self.watchers.append(watcher)
        on_answer()
        if since is None or since.resource_version != version:  # what has changed since then is not kept
            yield Listed(listed, version)
        while not stop.is_set():
            on_answer()
            try:
                at, event = watcher.events.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            stop.wait(max(0.0, at + self.watch_delays.get(plural, 0.0) - time.monotonic()))
            yield event

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
        self._called("dry-run" if dry_run else "create", resource, name)
        within = namespace or body["metadata"].get("namespace", "")
        raw = {key: value for key, value in body.items() if key != "status"}
        raw["metadata"] = {**body["metadata"], **({"namespace": within} if within else {})}
        with self.lock:
            if (within, name) in self.objects[kept_as(resource)]:
                raise _refusal(AlreadyExistsError, "create", resource, name)
            if dry_run:
                return decoded(self.on_dry_run(copied(raw)), type)
            raw["metadata"] |= {"uid": f"uid-{name}-{self.version}", "creationTimestamp": self.now()}
            stored = self._store(kept_as(resource), raw, may_add=True)
            answer = self._seen(resource, stored, type)
        self.react_to_creation(resource, stored)
        return answer

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
        self._called("merge", resource, name, subresource)
        with self.lock:
            old = self._find(resource, name, namespace)
            version = body.get("metadata", {}).get("resourceVersion")
            uid = body.get("metadata", {}).get("uid")
            if uid not in (None, "", old["metadata"].get("uid")) or version not in (
                *(None, ""),
                old["metadata"]["resourceVersion"],
            ):
                raise _refusal(ConflictError, "patch", resource, name, "the object has been modified")
            return self._seen(resource, self._change(resource, old, merged(old, body), subresource), type)

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
        self._called("patch", resource, name, subresource)
        with self.lock:
            old = self._find(resource, name, namespace)
            try:
                new = apply(operations, old)
            except LookupError:
                raise _refusal(InvalidObjectError, "patch", resource, name, "a test failed") from None
            return self._seen(resource, self._change(resource, old, new, subresource), type)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        **_: Any,
    ) -> None:
        self._called("delete", resource, name)
        with self.lock, self._noting_absence(resource, namespace, name):
            self.sightings.note_change(resource, namespace, name)
            raw = self._find(resource, name, namespace)
            self._require("delete", resource, raw, uid, resource_version)
            lingers = self.pods_linger and resource is PODS and raw["spec"].get("nodeName") and grace_seconds != 0
            if lingers or raw["metadata"].get("finalizers"):
                metadata = {"deletionTimestamp": self.now()} | raw["metadata"]
                self._store(kept_as(resource), {**raw, "metadata": metadata})
            else:
                self.remove(resource, raw)

    def evict(self, namespace: str, name: str, *, uid: str, resource_version: str | None = None, **_: Any) -> None:
        self._called("evict", PODS, name)
        with self.lock, self._noting_absence(PODS, namespace, name):
            self.sightings.note_change(PODS, namespace, name)
            pod = self._find(PODS, name, namespace)
            self._require("evict", PODS, pod, uid, resource_version)
            self.end_evicted(pod)

    # What others do at once

    def react_to_creation(self, resource: Resource, raw: Raw) -> None:
        """There are no controllers here."""

    def end_evicted(self, pod: Raw) -> None:
        """End a pod whose eviction no budget forbids."""
        self.remove(PODS, pod)

    # Inside

    def _called(self, verb: str, resource: Resource, name: str, subresource: str = "") -> None:
        call = ApiCall(f"{verb} {kept_as(resource)} {name}{'/' if subresource else ''}{subresource}")
        self.before(call.verb, call.plural, name)
        with self.lock:
            self.calls.append(call)
            for key in (call, f"{call.verb} {call.plural}"):
                match self.faults.get(key):
                    case [*_] as waiting if waiting:
                        raise waiting.pop(0)
                    case Exception() as fault:
                        raise fault

    def _find(self, resource: Resource, name: str, namespace: str | None) -> Raw:
        try:
            return self.objects[kept_as(resource)][namespace or "", name]
        except KeyError:
            raise _refusal(NotFoundError, "get", resource, name, "not found") from None

    def _seen(self, resource: Resource, raw: Raw, type_: Any) -> Any:
        """Return an object as a call shows it."""
        self.sightings.note_version(resource, raw["metadata"].get("resourceVersion", ""))
        return decoded(raw, type_)

    @contextmanager
    def _noting_absence(self, resource: Resource, namespace: str | None, name: str) -> Iterator[None]:
        try:
            yield
        except NotFoundError:
            self.sightings.note_change(resource, namespace, name)
            raise

    def _require(self, verb: str, resource: Resource, raw: Raw, uid: str | None, version: str | None) -> None:
        """Refuse a deletion whose preconditions do not hold."""
        metadata = raw["metadata"]
        if uid not in (None, metadata.get("uid")) or version not in (None, metadata["resourceVersion"]):
            raise _refusal(ConflictError, verb, resource, metadata["name"], "the precondition does not hold")

    def _change(self, resource: Resource, old: Raw, new: Raw, subresource: str) -> Raw:
        """Write a patched object: one part has the status and the other one has the rest.

        The status of a kind of its own has no metadata: https://kubernetes.io/docs/tasks/extend-kubernetes/\
custom-resources/custom-resource-definitions/#status-subresource
        """
        if subresource == "status":
            is_built_in = resource.group in _BUILT_IN_GROUPS or resource.group.endswith(".k8s.io")
            new = {**old, **({"metadata": new["metadata"]} if is_built_in else {}), "status": new.get("status", {})}
        else:
            new = {key: value for key, value in new.items() if key != "status"}
            new |= {"status": old["status"]} if "status" in old else {}
        metadata = old["metadata"]
        new["metadata"] = new["metadata"] | {"resourceVersion": metadata["resourceVersion"]}
        if new == old:
            return old  # A patch that changes nothing is not written and makes no event.
        stored = self._store(kept_as(resource), new)
        if metadata.get("deletionTimestamp") and metadata.get("finalizers") and not new["metadata"].get("finalizers"):
            self.remove(resource, stored)
        return stored

    def _store(self, plural: str, raw: Raw, *, may_add: bool = False) -> Raw:
        """Write an object as it is; one that is gone stays away unless it may be added."""
        key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        with self.lock:
            is_new = key not in self.objects[plural]
            if is_new and not may_add:
                return raw
            self.version += 1
            raw = copied(raw)
            raw["metadata"]["resourceVersion"] = str(self.version)
            self.objects[plural][key] = raw
            if plural == MIGRATION_PLANS.plural:
                self.past_versions[str(self.version)] = raw
            self._announce(plural, raw, lambda item: Changed(item, added=is_new))
            return raw

    def _announce(self, plural: str, raw: Raw, event: Callable[[Any], Any]) -> None:
        for watcher in self.watchers:
            if watcher.plural == plural and watcher.selects(raw):
                watcher.events.put((time.monotonic(), event(decoded(raw, watcher.type))))


def _refusal(kind: type[KubeError], verb: str, resource: Resource, name: str, message: str = "exists") -> KubeError:
    status = {NotFoundError: HTTPStatus.NOT_FOUND, InvalidObjectError: HTTPStatus.UNPROCESSABLE_ENTITY}
    failure = Failure(status_code=status.get(kind, HTTPStatus.CONFLICT), reason="InMemory", message=message)
    return kind(Call(verb, resource.describe(name)), failure)


def copied(raw: Any) -> Any:
    """Return a copy of JSON: to encode and decode it is several times as fast as `copy.deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(raw))


def decoded(raw: Raw, type_: Any) -> Any:
    if type_ is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(raw))
    return copied(raw) if type_ is dict else convert(msgspec.to_builtins(raw), type_)


def merged(target: Any, patch: Any) -> Any:
    """Return a JSON merge patch applied, as RFC 7396 says."""
    if not isinstance(patch, Mapping):
        return copied(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


_SELECTABLE: Final = ("metadata.name", "spec.nodeName", "status.phase")
_OF_SET: Final = re.compile(r"(?P<key>\S+) (?P<operator>in|notin) \((?P<values>[^)]*)\)")


def selector(namespace: str | None, labels: str, fields: str) -> Callable[[Raw], bool]:
    """Return which objects a namespace, a label selector and a field selector choose."""

    def chosen(raw: Raw) -> bool:
        metadata = raw["metadata"]
        is_here = namespace is None or metadata.get("namespace") == namespace
        return is_here and has_labels(metadata.get("labels") or {}, labels) and has_fields(raw, fields)

    return chosen


def has_labels(labels: Mapping[str, str], selector: str) -> bool:
    """Return whether labels meet a selector of the forms `a`, `!a`, `a=b`, `a!=b`, `a in (b,c)` and `a notin (b,c)`."""
    requirements = re.split(r",\s*(?![^(]*\))", selector) if selector else []
    return all(_has_label(labels, requirement.strip()) for requirement in requirements)


def _has_label(labels: Mapping[str, str], requirement: str) -> bool:
    if match := _OF_SET.fullmatch(requirement):
        values = [value.strip() for value in match["values"].split(",")]
        # `notin` chooses also what has no such label.
        return (labels.get(match["key"]) in values) is (match["operator"] == "in")
    if "!=" in requirement:
        key, _, value = requirement.partition("!=")
        return labels.get(key) != value
    key, equals, value = requirement.replace("==", "=").partition("=")
    if equals:
        return labels.get(key) == value
    return key.removeprefix("!") not in labels if key.startswith("!") else key in labels


def has_fields(body: Mapping[str, Any], selector: str) -> bool:
    """Return whether an object meets a field selector such as `status.phase=Pending,spec.nodeName=`."""
    for requirement in filter(None, selector.split(",")):
        is_excluded = "!=" in requirement
        path, _, wanted = requirement.partition("!=" if is_excluded else "=")
        assert path in _SELECTABLE, f"the API server in memory knows no field selector {requirement!r}"
        part, _, name = path.partition(".")
        if (body.get(part, {}).get(name, "") == wanted) is is_excluded:
            return False
    return True
