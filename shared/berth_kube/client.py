"""A thread-safe client with the API calls that the programs make."""
# ruff: noqa: A002 - `type` is what a caller passes: the type of what comes back

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Literal, Self, TypeVar

import msgspec
from urllib3.response import BaseHTTPResponse

from berth_core import Clock, SystemClock
from berth_kube.configuration import find_source
from berth_kube.decoding import AS_DICT, Page, T, build_decoders, decode, decode_page, resource_version_of
from berth_kube.errors import EVICT, PATCH, Call, ForbiddenError, KubeError, NotFoundError, UnreachableError
from berth_kube.grants import right_of
from berth_kube.listing import PAGE_SIZE, Listing, LooseListing, read_all, read_in_pages, read_loosely
from berth_kube.resources import PODS, Resource
from berth_kube.retries import CHANCE, Repeatable, RetryPolicy
from berth_kube.sightings import Sightings
from berth_kube.transport import JSON_PATCH, MERGE_PATCH, ConnectionSettings, Query, Request, Transport
from berth_kube.watch_items import WatchItem
from berth_kube.watching import WatchPace, WatchSettings, follow

R = TypeVar("R")
Body = Mapping[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]

_DRY_RUN: Final = ("dryRun", "All")
_STRICT: Final = ("fieldValidation", "Strict")
_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client beyond a single request."""

    max_connections: int = 32
    """Requests in flight at once, from all threads; watches have their own connections."""
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    watches: WatchSettings = field(default_factory=WatchSettings)
    silence_seconds: float | None = None
    """Longest silence of the server within a request; None for that of the connection."""


def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    user_agent: str = "berth",
    request_timeout: float = 30.0,
    settings: ClientSettings | None = None,
) -> "KubeClient":
    """Return a client for the kubeconfig or the pod's service account; sends no request.

    `request_timeout` is the longest silence of the server within a request, in seconds. Raises InputError with the
    wrong file or context. Types that are defined by now may then be decoded in any thread.
    """
    # Here, as the caller has no other threads yet: msgspec must not inspect one type in two of them.
    build_decoders()
    settings = settings or ClientSettings()
    connection = ConnectionSettings(
        user_agent=user_agent, request_seconds=request_timeout, max_connections=settings.max_connections
    )
    return KubeClient(Transport(find_source(kubeconfig, context), connection), settings=settings)


@dataclass(frozen=True, slots=True)
class _Collection(Generic[T]):
    """One collection with its selectors: a `watching.WatchSource`."""

    client: "KubeClient"
    resource: Resource
    namespace: str | None
    selectors: Query
    item_type: type[T]

    @property
    def call(self) -> Call:
        """Return the name of a watch in messages."""
        return Call("watch", self.resource.describe(namespace=self.namespace))

    def read_page(self, limit: int, continue_token: str, read: Callable[[bytes], R]) -> R:
        """Return what `read` makes of one page; a limit of 0 asks for all objects at once."""
        paging = [("limit", str(limit))] if limit else []
        paging += [("continue", continue_token)] if continue_token else []
        path = self.resource.path(namespace=self.namespace)
        # No resourceVersion: the list shows the present state, and an answer from a stale watch cache would miss what
        # this program has just written.
        request = Request(self.list_call, "GET", path, [*self.selectors, *paging], is_packed=True)
        return self.client.ask(request, Repeatable.ALWAYS, read)

    @property
    def list_call(self) -> Call:
        """Return the name of a list in messages."""
        return Call("list", self.call.target)

    def read_all(self) -> Listing[T]:
        return read_all(self.list_call, self.read_page, self.item_type)

    def read_loosely(self, is_wanted: Callable[[], bool]) -> LooseListing[T] | None:
        return read_loosely(self.list_call, self.read_page, self.item_type, is_wanted)

    def read_version(self) -> str:
        """Return the collection's newest resourceVersion, at the cost of a page of one object."""
        return self.read_page(1, "", lambda raw: decode_page(self.list_call, raw, dict).metadata.resource_version)

    def open_stream(self, resource_version: str, settings: WatchSettings) -> BaseHTTPResponse:
        """Return the stream of changes since a resourceVersion."""
        # Watches that began together, as after a restart of the API server, should not all return together.
        seconds = settings.server_seconds * CHANCE.uniform(1.0 - settings.spread, 1.0)
        query = [
            *self.selectors,
            ("watch", "true"),
            ("resourceVersion", resource_version),
            # Bookmarks keep the resourceVersion of a quiet watch recent, so that it can be resumed after a cut
            # (KEP-956).
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(max(1, int(seconds)))),
        ]
        request = Request(self.call, "GET", self.resource.path(namespace=self.namespace), query)
        try:
            return self.client.transport.open_stream(request, silence_seconds=settings.silence_seconds)
        except UnreachableError:
            self.client.note_loss()
            raise

    def broken(self, error: Exception) -> UnreachableError:
        """Return the error of a stream that broke."""
        self.client.note_loss()
        return self.client.transport.broken(self.call, error)


class KubeClient:
    """Client of one API server; thread-safe. `with` closes its connections.

    A `namespace` of None means all namespaces (list, watch) or a resource without them. Every method raises a
    `berth_kube.errors.KubeError`; what comes back is a dict unless a `type` for msgspec to decode is given.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        sightings: Sightings | None = None,
    ) -> None:
        self.transport = transport
        self.sightings = sightings or Sightings()
        """What calls for single objects have shown, shared with the clients made from this one."""
        self._settings = settings or ClientSettings()
        self._clock = clock or SystemClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server_url(self) -> str:
        return self.transport.server_url

    def close(self) -> None:
        """Close all idle connections."""
        self.transport.close()

    def apart(self, connections: int) -> "KubeClient":
        """Return a client with connections of its own, whose calls never wait for another client's."""
        return self._alike(self.transport.apart(connections), self._settings)

    def impersonating(self, user: str, connections: int) -> "KubeClient":
        """Return a client, with connections of its own, whose calls are made in the name of a ServiceAccount's user."""
        return self._alike(self.transport.impersonating(user, connections), self._settings)

    def within(self, seconds: float) -> "KubeClient":
        """Return a client with a deadline for each call, on the same connections.

        A call that began in time may take as long again.
        """
        retries = replace(self._settings.retries, deadline_seconds=seconds)
        # Both: the deadline of the retries ends no call that is under way.
        hurried = replace(self._settings, retries=retries, silence_seconds=seconds)
        return self._alike(self.transport, hurried)

    def _alike(self, transport: Transport, settings: ClientSettings) -> "KubeClient":
        return KubeClient(transport, settings=settings, clock=self._clock, sightings=self.sightings)

    def ask(self, request: Request, repeatable: Repeatable, read: Callable[[bytes], R]) -> R:
        """Send a request with retries; return what `read` makes of the body.

        Invalid JSON is retried, too. A right that was lost, or is missing after a lost connection, is retried until the
        deadline.
        """
        grants, right = self.transport.grants, right_of(request.call.verb, request.path)

        def send() -> bytes:
            try:
                body = self.transport.send(request, silence_seconds=self._settings.silence_seconds)
            except UnreachableError:
                self.note_loss()
                raise
            except KubeError as error:
                # Also an error may show that the right is there: a conflict is answered only after the authorization.
                grants.note_error(right, error)
                raise
            grants.note_allowed(right)
            return body

        try:
            return self._settings.retries.call(
                lambda: read(send()),
                repeatable=repeatable,
                clock=self._clock,
                is_doubtful=lambda error: grants.doubts(right, error, self._clock),
            )
        except ForbiddenError:
            grants.give_up(right)
            raise

    def silent_seconds(self) -> float:
        """Return how long ago the API server last answered anything."""
        return self.transport.silent_seconds()

    def note_loss(self) -> None:
        """Record that the connection was lost just now."""
        self.transport.grants.note_loss(self._clock)

    def send(self, request: Request, repeatable: Repeatable) -> bytes:
        """Return the body of a request's answer; for calls that have no method here."""
        return self.ask(request, repeatable, bytes)

    def _object(self, request: Request, repeatable: Repeatable, type_: type[T], stored_as: Resource | None = None) -> T:
        """Return the object in a request's answer; `stored_as` is its kind if the answer shows a stored object."""

        def read(raw: bytes) -> T:
            decoded = decode(request.call, raw, type_)
            if stored_as is not None and self.sightings.are_awaited:
                self.sightings.note_version(stored_as, resource_version_of(request.call, msgspec.Raw(raw)))
            return decoded

        return self.ask(request, repeatable, read)

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: type[T] = AS_DICT) -> T:
        call = Call("get", resource.describe(name, namespace=namespace))
        request = Request(call, "GET", resource.path(name, namespace=namespace))
        with self._noting_absence(resource, name, namespace):
            return self._object(request, Repeatable.ALWAYS, type, resource)

    def get_version(
        self,
        resource: Resource,
        name: str,
        resource_version: str,
        *,
        namespace: str | None = None,
        type: type[T] = AS_DICT,
    ) -> T | None:
        """Return one object as it was at a resourceVersion, None if it was not there then.

        Raises a KubeError for a version that the API server does not keep any more: etcd forgets after minutes.
        """
        call = Call("list", resource.describe(name, namespace=namespace))
        # A get takes no `resourceVersionMatch`; a list with a field selector on the name does.
        query = [*_selectors("", f"metadata.name={name}"), *_exactly(resource_version)]
        request = Request(call, "GET", resource.path(namespace=namespace), query)
        page: Page[T] = self.ask(request, Repeatable.UNLESS_ACTED, lambda raw: decode_page(call, raw, type))
        return next(iter(page.items), None)

    def serves(self, resource: Resource) -> bool:
        """Return whether the API server names a kind in its discovery."""
        call = Call("discover", resource.api_version)
        # Not the list of CRDs, for which the caller may have no right: discovery is open to every authenticated user
        # (ClusterRole system:discovery).
        request = Request(call, "GET", f"/apis/{resource.group}/{resource.version}")
        try:
            resource_list = self._object(request, Repeatable.ALWAYS, AS_DICT)
        except NotFoundError:
            return False
        return any(
            served_resource.get("name") == resource.plural for served_resource in resource_list.get("resources") or ()
        )

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T] = AS_DICT,
        page_size: int = PAGE_SIZE,
    ) -> Listing[T]:
        """Return all objects that the selectors match, read in pages."""
        collection = _Collection(self, resource, namespace, _selectors(label_selector, field_selector), type)
        return read_all(collection.list_call, collection.read_page, type, page_size=page_size)

    def list_pages(self, resource: Resource, *, type: type[T] = AS_DICT) -> Listing[T]:
        """Return all objects; raises GoneError where the pages expire, where `list` begins again in one piece."""
        collection = _Collection(self, resource, None, (), type)
        return read_in_pages(collection.list_call, collection.read_page, type)

    def list_loosely(
        self, resource: Resource, is_wanted: Callable[[], bool] = lambda: True, *, type: type[T] = AS_DICT
    ) -> LooseListing[T] | None:
        """Return all objects, in pages however long that takes, None once they are not wanted; see `LooseListing`."""
        return _Collection(self, resource, None, (), type).read_loosely(is_wanted)

    def last_version(self, resource: Resource) -> str:
        """Return the last resourceVersion of a kind, for the price of one object."""
        return _Collection(self, resource, None, (), dict).read_version()

    def watch(
        self,
        resource: Resource,
        *,
        stop: threading.Event,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T] = AS_DICT,
        settings: WatchSettings | WatchPace | None = None,
        since: Listing[T] | None = None,
        on_answer: Callable[[], object] = lambda: None,
    ) -> Iterator[WatchItem[T]]:
        """Yield `Listed` and then every change until `stop` is set, or the changes `since` a list; see `follow`.

        Without `settings` the client's own count.
        """
        collection = _Collection(self, resource, namespace, _selectors(label_selector, field_selector), type)
        settings = settings or self._settings.watches
        return follow(collection, stop=stop, settings=settings, since=since, on_answer=on_answer)

    def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        strict: bool = False,
        type: type[T] = AS_DICT,
    ) -> T:
        """Create an object and return it.

        The object is as the server stored it, or would with `dry_run`. With `strict` the server refuses unknown fields
        (RefusedError) instead of dropping them. Not repeated after a failure that may have come too late: the caller
        may then get AlreadyExistsError.
        """
        metadata = body.get("metadata") or {}
        namespace = namespace or (metadata.get("namespace") if resource.namespaced else None)
        # A collection's POST has no name in its path; this one is for the message of an error.
        name = metadata.get("name") or metadata.get("generateName") or ""
        call = Call("create", resource.describe(name, namespace=namespace))
        query = [parameter for parameter, is_asked in ((_DRY_RUN, dry_run), (_STRICT, strict)) if is_asked]
        request = Request(call, "POST", resource.path(namespace=namespace), query, _ENCODER.encode(body))
        # A dry run's answer has a resourceVersion, too, but no watch will ever bring it.
        stored_as = None if dry_run else resource
        return self._object(request, Repeatable.ALWAYS if dry_run else Repeatable.UNLESS_ACTED, type, stored_as)

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        subresource: str = "",
        type: type[T] = AS_DICT,
    ) -> T:
        """Return the object after a JSON merge patch; the patch's `metadata.resourceVersion` is a precondition."""
        request = _patch_request(MERGE_PATCH, resource, name, body, namespace, subresource)
        return self._object(request, Repeatable.ALWAYS, type, resource)

    def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Body],
        *,
        namespace: str | None = None,
        subresource: str = "",
        type: type[T] = AS_DICT,
    ) -> T:
        """Return the object after a JSON patch; a failed `test` raises InvalidObjectError.

        Not repeated after a failure that may have come too late: adding to a list twice is not adding once.
        """
        request = _patch_request(JSON_PATCH, resource, name, operations, namespace, subresource)
        return self._object(request, Repeatable.UNLESS_ACTED, type, resource)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Delete one object; raises ConflictError if `uid` or `resource_version` differs.

        Raises NotFoundError if it is gone, also by an earlier try of this call.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            **_delete_options(uid, resource_version, grace_seconds),
            **({"propagationPolicy": propagation} if propagation else {}),
        }
        call = Call("delete", resource.describe(name, namespace=namespace))
        path = resource.path(name, namespace=namespace)
        with self._noting_absence(resource, name, namespace):
            # Repeatable, since a second deletion of the same object does nothing more; a caller who must not hit a
            # namesake gives the uid.
            self.send(Request(call, "DELETE", path, body=_ENCODER.encode(options)), Repeatable.ALWAYS)
        self.sightings.note_change(resource, namespace, name)

    @contextmanager
    def _noting_absence(self, resource: Resource, name: str, namespace: str | None) -> Iterator[None]:
        try:
            yield
        except NotFoundError:
            # It is gone, which a watch may not have shown yet.
            self.sightings.note_change(resource, namespace, name)
            raise

    def evict(
        self,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Evict exactly this pod; raises EvictionBlockedError if a disruption budget forbids it.

        Raises EvictionInterceptedError at once if an admission webhook answers instead, ConflictError if another pod
        has the name by now or this one is of another resource version, NotFoundError if none has.
        """
        options = _delete_options(uid, resource_version, grace_seconds)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": options | ({"dryRun": ["All"]} if dry_run else {}),
        }
        call = Call(EVICT, PODS.describe(name, namespace=namespace))
        path = PODS.path(name, namespace=namespace, subresource="eviction")
        with self._noting_absence(PODS, name, namespace):
            # Repeatable, as the uid is always given: a second eviction finds the pod terminating, or a 404 or 409.
            self.send(Request(call, "POST", path, body=_ENCODER.encode(body)), Repeatable.ALWAYS)
        if not dry_run:
            self.sightings.note_change(PODS, namespace, name)


def _selectors(label_selector: str, field_selector: str) -> Query:
    """Return the query of selectors, without the empty ones."""
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return [(key, value) for key, value in pairs if value]


def _exactly(resource_version: str) -> Query:
    # Without the match the API server takes a resourceVersion as "not older than", and would answer with the present
    # object (`ResourceVersionMatch` in apimachinery's pkg/apis/meta/v1/types.go).
    return [("resourceVersion", resource_version), ("resourceVersionMatch", "Exact")]


def _patch_request(
    content_type: str,
    resource: Resource,
    name: str,
    body: Body | Sequence[Body],
    namespace: str | None,
    subresource: str,
) -> Request:
    target = resource.describe(name, namespace=namespace) + (f" ({subresource})" if subresource else "")
    path = resource.path(name, namespace=namespace, subresource=subresource)
    return Request(Call(PATCH, target), "PATCH", path, (), _ENCODER.encode(body), content_type)


def _delete_options(uid: str | None, resource_version: str | None, grace_seconds: int | None) -> dict[str, Any]:
    """Return the fields of DeleteOptions that deletion and eviction share."""
    # By uid, because names of StatefulSets' pods come back: without it the deletion of web-0 would hit the new web-0
    # (Preconditions of DeleteOptions; 409 if it differs).
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, Any] = {"preconditions": preconditions} if preconditions else {}
    return options if grace_seconds is None else options | {"gracePeriodSeconds": grace_seconds}
