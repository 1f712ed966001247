"""Lists of whole collections in bounded pages (KEP-365).

A list whose token expires is read in one piece. Lists are not read as watches (KEP-3157): up to 1.36 the API server
compresses lists and no watch (kubernetes/kubernetes#136030), which is fifteen times the bytes.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from berth_kube.decoding import ObjectKey, Page, T, decode_page, object_version_of, split_page, version_number
from berth_kube.errors import Call, GoneError

# As client-go's pager (`defaultPageSize` in `tools/pager`).
PAGE_SIZE: Final = 500

R = TypeVar("R")


class PageReader(Protocol):
    """Reads one page of at most `limit` objects; 0 asks for all of them, and the token "" for the first page."""

    def __call__(self, limit: int, continue_token: str, read: Callable[[bytes], R]) -> R:
        """Return what `read` makes of the page's body; raises a KubeError."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a collection at one resourceVersion."""

    items: tuple[T, ...]
    resource_version: str
    began: float = -math.inf
    """Monotonic time at which the list was requested: it has everything that was stored before."""


def read_all(call: Call, read_page: PageReader, item_type: type[T], *, page_size: int = PAGE_SIZE) -> Listing[T]:
    """Return the whole collection.

    Once a token has expired, reads it in one piece, which needs none: the server keeps old versions for minutes only,
    so a reader that was too slow for the pages would be too slow again. The token for an inconsistent continuation in
    the refusal (`metadata.continue`) is not taken: changes to the pages before would be missing. `read_loosely` takes
    it.
    """
    try:
        return read_in_pages(call, read_page, item_type, page_size)
    except GoneError:
        return read_in_pages(call, read_page, item_type, 0)


def read_in_pages(call: Call, read_page: PageReader, item_type: type[T], page_size: int = PAGE_SIZE) -> Listing[T]:
    """Return the whole collection, decoding each page before the next is read; raises GoneError once these expire."""
    items: list[T] = []
    continue_token = ""
    began = time.monotonic()
    while True:
        # Decoded page by page, so that no more than one page is in memory as bytes beside the objects.
        page: Page[T] = read_page(page_size, continue_token, lambda raw: decode_page(call, raw, item_type))
        items.extend(page.items)
        continue_token = page.metadata.continue_token
        if not continue_token:
            return Listing(tuple(items), page.metadata.resource_version, began)


@dataclass(frozen=True, slots=True)
class LooseListing(Generic[T]):
    """A collection whose last pages may be newer than its first: a watch since before makes it whole."""

    listing: Listing[T]
    """It has the resourceVersion of the first page."""
    newer_versions: Mapping[ObjectKey, int]
    """The versions of the objects that are newer than that."""
    last_version: str
    """The resourceVersion of the last page: the collection is whole once a watch has come that far."""

    @property
    def is_whole(self) -> bool:
        """Return whether all pages show the same moment."""
        return self.last_version == self.listing.resource_version


def read_loosely(
    call: Call,
    read_page: PageReader,
    item_type: type[T],
    is_wanted: Callable[[], bool] = lambda: True,
    *,
    page_size: int = PAGE_SIZE,
) -> LooseListing[T] | None:
    """Return the whole collection, however long that takes; None once it is not wanted any more.

    Once a token has expired the rest is read as it is by then, in pages: the API server cuts off an answer that takes
    longer than its `--request-timeout`, so one piece would never arrive.
    """
    items: list[T] = []
    newer: dict[ObjectKey, int] = {}
    first_version = ""
    token = ""
    began = time.monotonic()

    def read(raw: bytes) -> tuple[Page[T], dict[ObjectKey, int]]:
        page = decode_page(call, raw, item_type)
        is_newer = bool(first_version) and page.metadata.resource_version != first_version
        return page, _versions_above(call, raw, version_number(first_version)) if is_newer else {}

    while is_wanted():
        try:
            page, newer_of_page = read_page(page_size, token, read)
        except GoneError as error:
            # The same token again would be refused for ever.
            if not error.continue_token or error.continue_token == token:
                raise
            token = error.continue_token
            continue
        items.extend(page.items)
        newer |= newer_of_page
        first_version = first_version or page.metadata.resource_version
        token = page.metadata.continue_token
        if not token:
            listing = Listing(tuple(items), first_version, began)
            return LooseListing(listing, newer, page.metadata.resource_version)
    return None


def _versions_above(call: Call, body: bytes, version: int) -> dict[ObjectKey, int]:
    """Return the versions of a page's objects that are higher than one."""
    versions = (object_version_of(call, raw) for raw in split_page(body).items)
    return {own.key: own.version for own in versions if own.version > version}
