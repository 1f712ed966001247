"""A cache that reads each object and each list once, for several questions about one moment."""
# ruff: noqa: A002 - `type` is what a caller passes, as in the client

from typing import Any

import msgspec

from berth_kube.decoding import AS_DICT, T, decode
from berth_kube.errors import Call, ForbiddenError, NotFoundError
from berth_kube.listing import Listing
from berth_kube.resources import Resource
from berth_kube.watched_lists import ListSource

_AS_READ: Any = msgspec.Raw


class ReadCache:
    """A `ListSource` that remembers what it has read; for one thread.

    An object that is asked for as several types is requested once. A missing object or a missing right is remembered,
    too; any other error is not.
    """

    def __init__(self, source: ListSource) -> None:
        self._source = source
        self._objects: dict[tuple[Resource, str, str | None], msgspec.Raw | NotFoundError | ForbiddenError] = {}
        self._lists: dict[tuple[Resource, str | None, str, str, Any], Listing[Any]] = {}

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: type[T] = AS_DICT) -> T:
        """Return one object as it was when first asked for; raises a KubeError."""
        key = (resource, name, namespace)
        if key not in self._objects:
            try:
                self._objects[key] = self._source.get(resource, name, namespace=namespace, type=_AS_READ)
            except (NotFoundError, ForbiddenError) as error:
                # A missing object must stay missing for all questions about one pod: rules that saw two states could
                # each say yes.
                self._objects[key] = error
        answer = self._objects[key]
        if isinstance(answer, NotFoundError | ForbiddenError):
            raise answer
        return decode(Call("get", resource.describe(name, namespace=namespace)), answer, type)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T] = AS_DICT,
    ) -> Listing[T]:
        """Return all objects that the selectors match, as they were when first asked for; raises a KubeError."""
        key = (resource, namespace, label_selector, field_selector, type)
        if key not in self._lists:
            self._lists[key] = self._source.list(
                resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector, type=type
            )
        return self._lists[key]

    def has_all(self, resource: Resource, *, namespace: str | None = None, type: type[Any] = AS_DICT) -> bool:
        """Return whether all objects of a kind were read as a type."""
        return (resource, namespace, "", "", type) in self._lists
