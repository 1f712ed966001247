"""How deeply JSON may be nested, and cutting out what is nested more deeply.

Python's decoders recurse, and fail where the interpreter's recursion limit of about 1,000 calls is reached. The API
server stores up to 10,000 levels (`maxNestingDepth` in Go's encoding/json).
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

MAX_DEPTH: Final = 100
"""Maximum nesting of an object; a pod's own fields are at most 20 levels deep."""

CUT: Final = "\0nested too deeply"
"""Replacement of a value that was cut off; API objects have no such text."""
_RAW_CUT: Final = b'"\\u0000nested too deeply"'
# Possessive quantifiers: a text that never ends costs no backtracking.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+|[\[\]{}]', re.DOTALL)


def may_be_too_deep(raw: bytes) -> bool:
    """Return whether JSON opens so many values that they could be nested too deeply; costs little."""
    return raw.count(b"{") + raw.count(b"[") > MAX_DEPTH


def is_too_deep(value: object) -> bool:
    """Return whether a decoded object is deeper than `MAX_DEPTH`; does not recurse."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, _CONTAINERS)]
        if not level:
            return False
    return True


# A tuple: a union would be made anew for each value that is looked at.
_CONTAINERS: Final = (dict, list, tuple, msgspec.Struct)


def _inside(value: object) -> Iterable[object]:
    """Return the direct children of a container; any other value has none."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    return msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else ()


def cut(raw: bytes, *, outer_levels: int = 0) -> bytes:
    """Cut values that are nested below `MAX_DEPTH` and `outer_levels` more out of JSON; a mark replaces each.

    One pass over brackets and texts, without a stack: the input may be hostile. Text that is no JSON stays no JSON.
    """
    deepest = MAX_DEPTH + outer_levels
    kept_parts: list[bytes] = []
    depth = kept_until = 0
    for token in _TOKEN.finditer(raw):
        match raw[token.start()]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == deepest + 1:
                    kept_parts += (raw[kept_until : token.start()], _RAW_CUT)
                    kept_until = len(raw)
            case 0x5D | 0x7D:  # ] }
                if depth == deepest + 1:
                    kept_until = token.end()
                depth -= 1
    return b"".join((*kept_parts, raw[kept_until:]))


def is_cut(raw: bytes | str | msgspec.Raw) -> bool:
    """Return whether values were cut out of JSON."""
    return _RAW_CUT in (raw.encode() if isinstance(raw, str) else bytes(raw))


def has_cut(value: object) -> bool:
    """Return whether a decoded value has one that was cut out of its JSON; does not recurse.

    What is not decoded yet, `msgspec.Raw`, does not count.
    """
    level: list[object] = [value]
    while level:
        if CUT in (inner for inner in level if isinstance(inner, str)):
            return True
        level = [inner for outer in level for inner in _inside(outer)]
    return False
