"""Owns the decoding of answers into the types that callers ask for, and the decoders' cache.

It does not own those types: they are of `berth_core` or of the caller.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from berth_kube.errors import Call, Status, error_from_decoding

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # what is asked for without a type is a dict; Python says so from 3.13

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")

AS_DICT: Any = dict
"""The type that callers get who ask for none."""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a page: the list's resourceVersion and the token of the next page ("" on the last)."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list; Go writes an empty list as null now and then."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; `object` is decoded by its type."""

    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct, frozen=True):
    """The part of any object that tells its resourceVersion."""

    metadata: ListMeta = ListMeta()


@lru_cache(maxsize=256)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - any type that msgspec decodes
    """Return the decoder of a type; building one takes longer than using it."""
    return msgspec.json.Decoder(dict[str, Any] if type_ is dict else type_)


@lru_cache(maxsize=256)
def _page_decoder(item_type: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - any type that msgspec decodes
    """Return the decoder of a page of a type."""
    return msgspec.json.Decoder(Page[dict[str, Any]] if item_type is dict else Page[item_type])


def decode(call: Call, body: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Return an object; raises MalformedAnswerError or UnexpectedObjectError."""
    cache_key: Any = type_
    try:
        decoded: T = _decoder(cache_key).decode(body)
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error
    return decoded


def decode_page(call: Call, body: bytes, item_type: type[T]) -> Page[T]:
    """Return a page of objects; raises MalformedAnswerError or UnexpectedObjectError."""
    cache_key: Any = item_type
    try:
        page: Page[T] = _page_decoder(cache_key).decode(body)
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error
    return page


def resource_version_of(call: Call, raw_object: msgspec.Raw) -> str:
    """Return the resourceVersion of an undecoded object."""
    return decode(call, raw_object, _Versioned).metadata.resource_version


def decode_error_status(call: Call, raw_object: msgspec.Raw) -> Status:
    """Return the Status that an ERROR event carries."""
    return decode(call, raw_object, Status)
