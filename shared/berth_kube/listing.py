"""Owns reading whole collections: pages of bounded size, and starting again when a continue token has expired.

It does not own what the objects are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from berth_kube.decoding import Page, T, decode_page
from berth_kube.errors import Call, GoneError

PAGE_SIZE: Final = 500
_PAGED_ATTEMPTS: Final = 3

R = TypeVar("R")


class PageReader(Protocol):
    """Reads one page: at most `limit` objects (0: all), by its token ("" for the first), passing its body to `read`."""

    def __call__(self, limit: int, continue_token: str, read: Callable[[bytes], R]) -> R:
        """Return what `read` makes of the page; raises a KubeError."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a collection at one resourceVersion."""

    items: tuple[T, ...]
    resource_version: str


def read_all(call: Call, read_page: PageReader, item_type: type[T], *, page_size: int = PAGE_SIZE) -> Listing[T]:
    """Return the whole collection; a token that expired starts it again, at last in one piece.

    The server keeps old versions for some minutes only: a slow reader of a large list may never get through in pages.
    """
    for _ in range(_PAGED_ATTEMPTS):
        try:
            return _read_in_pages(call, read_page, item_type, page_size)
        except GoneError:
            continue
    return _read_in_pages(call, read_page, item_type, 0)


def _read_in_pages(call: Call, read_page: PageReader, item_type: type[T], page_size: int) -> Listing[T]:
    """Return the whole collection, decoding each page before the next is read."""
    items: list[T] = []
    continue_token = ""
    while True:
        page: Page[T] = read_page(page_size, continue_token, lambda raw: decode_page(call, raw, item_type))
        items.extend(page.items or ())
        continue_token = page.metadata.continue_token
        if not continue_token:
            return Listing(tuple(items), page.metadata.resource_version)
