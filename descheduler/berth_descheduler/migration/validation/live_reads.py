"""Reads of single objects right before an eviction."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

from berth_kube import ForbiddenError, ListSource, NotFoundError, Resource

T = TypeVar("T")


def read_if_allowed(
    source: ListSource, resource: Resource, name: str, *, namespace: str | None = None, type_: type[T]
) -> Iterator[T]:
    """Yield an object, none if it is not there or may not be read."""
    with suppress(NotFoundError, ForbiddenError):
        yield source.get(resource, name, namespace=namespace, type=type_)
