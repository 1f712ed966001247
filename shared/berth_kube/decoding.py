"""Decoding of answers into the callers' types, and the cache of decoders."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

import msgspec

from berth_core import DeschedulerPolicy, MigrationPlan, Pod, mark
from berth_core.decoding import Decoder, TooDeepError
from berth_core.depths import is_cut, is_too_deep, may_be_too_deep
from berth_core.shared_parts import share_parts
from berth_core.unreadable import readable_body, stand_in, why_unreadable
from berth_kube.errors import Call, KubeError, Status, UnexpectedObjectError, error_from_decoding

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # what is asked for without a type is a dict; Python says so from 3.13

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")

AS_DICT: Any = dict
"""The type for callers that request none."""

_PAGE_LEVELS: Final = 2
"""How much deeper an object is nested in a page."""
_EVENT_LEVELS: Final = 1
"""How much deeper an object is nested in an event."""
_WITH_ANY_VALUES: Final[tuple[Any, ...]] = (dict, dict[str, Any], MigrationPlan, DeschedulerPolicy)
"""Types that keep values without a schema, which tenants may nest at will."""
_UNTYPED: Final[tuple[Any, ...]] = (dict, dict[str, Any])


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """A page's metadata: resourceVersion and next token ("" on the last page)."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; `object` is decoded by its type."""

    type: str
    object: msgspec.Raw


_EVENT_DECODER: Final = Decoder(WatchEvent, outer_levels=_EVENT_LEVELS)


class _Versioned(msgspec.Struct, frozen=True):
    """The part of any object with its resourceVersion."""

    metadata: ListMeta = ListMeta()


_BUILDING: Final = threading.Lock()
"""Held while msgspec inspects types: decoding a half-inspected type in another thread crashes the process."""


def build_decoders() -> None:
    """Have msgspec inspect all types that are defined by now, while the program has one thread only."""
    with _BUILDING:
        for type_ in _structs_below(msgspec.Struct):
            Decoder(type_)


def _structs_below(type_: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for struct in type_.__subclasses__():
        yield struct
        yield from _structs_below(struct)


@lru_cache(maxsize=256)
def _decoder(type_: Any) -> Decoder[Any]:  # noqa: ANN401 - any type that msgspec decodes
    """Return the cached decoder of a type; building one takes longer than using it."""
    with _BUILDING:
        return Decoder(dict[str, Any] if type_ is dict else type_)


@lru_cache(maxsize=256)
def _page_decoder(item_type: Any) -> Decoder[Any]:  # noqa: ANN401 - any type that msgspec decodes
    page_type: Any = Page[dict[str, Any]] if item_type is dict else Page[item_type]
    with _BUILDING:
        return Decoder(page_type, outer_levels=_PAGE_LEVELS)


def decode(call: Call, body: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Return an object; raises MalformedAnswerError or UnexpectedObjectError.

    Without a type, an object that cannot be read as a whole is replaced by its stand-in.
    """
    cache_key: Any = type_
    try:
        decoded: T = _decoder(cache_key).decode(body)
    except TooDeepError:
        return _without_depths(call, body, type_)
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error
    if type_ in _WITH_ANY_VALUES and may_be_too_deep(bytes(body)) and is_too_deep(decoded):
        return _without_depths(call, body, type_)
    return decoded


def _without_depths(call: Call, body: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Return the stand-in of a too deeply nested object, or the object without the fields that nothing reads.

    Raises a KubeError if a type was requested.
    """
    shallow = _readable(call, body)
    why = why_unreadable(shallow, None)
    if type_ in _UNTYPED and not (why or is_too_deep(shallow)):
        return shallow  # type: ignore[return-value]  # it was asked for without a type
    if type_ not in _UNTYPED:
        raise error_from_decoding(call, msgspec.ValidationError(why))
    marked: Any = mark(shallow, why) if isinstance(shallow.get("metadata"), dict) else shallow
    return marked  # type: ignore[no-any-return]  # it was asked for without a type


def decode_item(call: Call, body: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Return one of many objects, or its stand-in if it cannot be decoded.

    Raises MalformedAnswerError or UnexpectedObjectError for an item that is no object at all.
    """
    cache_key: Any = type_
    failure: Exception | None = None
    try:
        decoded: T = _decoder(cache_key).decode(body)
        if not (type_ in _WITH_ANY_VALUES and is_too_deep(decoded)) and not _lacks_values(call, body):
            if cache_key is Pod:
                share_parts(decoded)  # type: ignore[arg-type]  # the type is a parameter
            return decoded
    except msgspec.ValidationError as error:
        failure = error
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error
    shallow = _readable(call, body)
    if type_ in _UNTYPED and not (why_unreadable(shallow, None) or is_too_deep(shallow)):
        return shallow  # type: ignore[return-value]  # it was asked for without a type
    return _stand_in(call, shallow, type_, failure)


def _stand_in(call: Call, shallow: dict[str, Any], type_: type[T], failure: Exception | None) -> T:
    """Return the stand-in of an object without its too deep values."""
    why = why_unreadable(shallow, failure)
    try:
        stand_in_object: Any = mark(shallow, why) if type_ in _UNTYPED else stand_in(shallow, type_, why)
    except msgspec.ValidationError as error:
        raise error_from_decoding(call, _as_misfit(failure or error)) from error
    return stand_in_object  # type: ignore[no-any-return]  # a dict was asked for, or it is of the type


def _lacks_values(call: Call, body: bytes | msgspec.Raw) -> bool:
    """Return whether values were cut out of an object, other than those that say nothing about it."""
    return is_cut(body) and bool(why_unreadable(_readable(call, body), None))


def _as_misfit(error: Exception) -> msgspec.DecodeError:
    return error if isinstance(error, msgspec.DecodeError) else msgspec.ValidationError(str(error))


def _readable(call: Call, raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return an object without values that are nested too deeply."""
    try:
        return readable_body(raw)
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error


def decode_page(call: Call, body: bytes, item_type: type[T]) -> Page[T]:
    """Return a page of objects; raises MalformedAnswerError or UnexpectedObjectError.

    Only if the page as a whole cannot be decoded are its objects decoded one by one, with a stand-in for each that
    cannot be: that takes several times as long.
    """
    cache_key: Any = item_type
    try:
        page: Page[T] = _page_decoder(cache_key).decode_strictly(body)
    except (msgspec.ValidationError, RecursionError) as error:
        return _decode_one_by_one(call, body, item_type, error)
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error
    if item_type in _WITH_ANY_VALUES and any(map(is_too_deep, page.items)):
        return _decode_one_by_one(call, body, item_type, None)
    if cache_key is Pod:
        for pod in page.items:
            share_parts(pod)  # type: ignore[arg-type]  # the type of the items is a parameter
    return page


def _decode_one_by_one(call: Call, body: bytes, item_type: type[T], failure: Exception | None) -> Page[T]:
    """Return a page whose objects are decoded one by one; raises the page's error if that fails, too."""
    try:
        page = split_page(body)
        items = tuple(decode_item(call, raw, item_type) for raw in page.items)
    except (msgspec.DecodeError, KubeError) as error:
        raise error_from_decoding(call, _as_misfit(failure or error)) from error
    return Page(page.metadata, items)


def split_page(body: bytes) -> Page[msgspec.Raw]:
    """Return a page with undecoded objects; too deep values are cut."""
    raw_type: Any = msgspec.Raw
    decoder: Decoder[Page[msgspec.Raw]] = _page_decoder(raw_type)
    return decoder.decode(body)


def decode_event(call: Call, line: bytes) -> WatchEvent:
    """Return one line of a watch with its object undecoded; too deep values are cut."""
    try:
        return _EVENT_DECODER.decode(line)
    except msgspec.DecodeError as error:
        raise error_from_decoding(call, error) from error


def resource_version_of(call: Call, raw_object: msgspec.Raw) -> str:
    """Return the resourceVersion of an undecoded object, "" if it cannot be read."""
    with suppress(UnexpectedObjectError):
        return decode(call, raw_object, _Versioned).metadata.resource_version
    return ""


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number; 0 without one.

    The numbers of one kind can be compared: from Kubernetes 1.35 on by contract (KEP-5504), before because they are
    etcd's revisions.
    """
    return int(resource_version) if resource_version.isdecimal() else 0


class ObjectKey(NamedTuple):
    """Names an object of one kind."""

    namespace: str
    name: str


class _ObjectHead(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Headed(msgspec.Struct, frozen=True):
    metadata: _ObjectHead = _ObjectHead()


class ObjectVersion(NamedTuple):
    """Names one version of an object of one kind."""

    key: ObjectKey
    uid: str
    """Tells it from an earlier object of the same name."""
    version: int
    """The resourceVersion as a number, 0 if it cannot be read."""


def object_version_of(call: Call, raw_object: msgspec.Raw) -> ObjectVersion:
    """Return which version of which object it is."""
    try:
        metadata = decode(call, raw_object, _Headed).metadata
    except UnexpectedObjectError:
        return ObjectVersion(ObjectKey("", ""), "", 0)
    key = ObjectKey(metadata.namespace, metadata.name)
    return ObjectVersion(key, metadata.uid, version_number(metadata.resource_version))


def decode_error_status(call: Call, raw_object: msgspec.Raw) -> Status:
    """Return the Status that an ERROR event carries."""
    return decode(call, raw_object, Status)
