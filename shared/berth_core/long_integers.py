"""Integers beyond 64 bits in JSON, cut out before it is decoded.

The API server refuses them, but a file may have them. Python's integers have no bound, so they would fail only later,
when msgspec encodes them.
"""

import re
from typing import Final

import msgspec

TOO_LARGE: Final = "\0beyond 64 bits"
"""Replacement of such an integer; API objects have no such text."""

_RAW_TOO_LARGE: Final = b'"\\u0000beyond 64 bits"'
_LONG_INTEGER: Final = b"0" * 19
_DIGITS_AS_ZEROS: Final = bytes(b"0"[0] if code in b"0123456789" else b" "[0] for code in range(256))
_PART: Final = 1 << 20
"""Bytes that are looked through at a time."""

# Possessive quantifiers: a text that never ends costs no backtracking. Texts are matched as a whole, so that digits in
# them are left alone.
_TEXT_OR_INTEGER: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+|-?[0-9]{19,}+(?![.eE0-9])', re.DOTALL)
_INT64: Final = 1 << 63
_MAX_DIGITS: Final = 19


def cut_long_integers(raw: bytes) -> bytes:
    """Replace each integer beyond 64 bits in JSON by a mark."""
    if not _has_long_integer(raw):  # hardly any file has one
        return raw
    return _TEXT_OR_INTEGER.sub(_marked_if_too_large, raw)


def _has_long_integer(raw: bytes) -> bool:
    """Return whether there are so many digits in a row anywhere; a regular expression takes forty times as long."""
    overlap = len(_LONG_INTEGER) - 1
    parts = (raw[start : start + _PART + overlap] for start in range(0, len(raw), _PART))
    return any(_LONG_INTEGER in part.translate(_DIGITS_AS_ZEROS) for part in parts)


def has_cut_integer(raw: bytes | msgspec.Raw) -> bool:
    """Return whether integers were cut out of JSON."""
    return _RAW_TOO_LARGE in bytes(raw)


def _marked_if_too_large(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if text.startswith(b'"'):
        return text
    digits = text.lstrip(b"-").lstrip(b"0")
    fits = len(digits) <= _MAX_DIGITS and -_INT64 <= int(text) < _INT64
    return text if fits else _RAW_TOO_LARGE
