"""Texts for people: counted nouns and their verbs, cut lists and printable characters."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

_DECIMALS: Final = 4


def count(number: int, noun: str) -> str:
    """Return a number with a noun, which takes an s unless the number is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def agreeing(number: int, verb: str) -> str:
    """Return a regular verb as it follows a number of subjects: `frees` after one, `free` after any other."""
    return f"{verb}s" if number == 1 else verb


def first_few(names: Sequence[str], limit: int) -> str:
    """Return at most `limit` names, and how many more there are."""
    more_text = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more_text}"


def percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"


def rounded(share: Fraction) -> float:
    """Return a ratio with as many decimals as documents have."""
    return float(round(share, _DECIMALS))


# Control characters could move the terminal's cursor or change its colours: they become visible signs.
_PICTURES: Final = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_SIGNS: Final = _PICTURES | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
"""Unicode has pictures of the first 32 control characters and of delete, but not of the second 32."""

_TEXT_SIGNS: Final = {code: sign for code, sign in _SIGNS.items() if chr(code) not in "\n\t"}


def printable_line(text: str) -> str:
    """Return a text as one line without control characters; line breaks become blanks."""
    return " ".join(text.splitlines()).translate(_SIGNS)


def printable_text(text: str) -> str:
    """Return a text without control characters, except for line breaks and tabs."""
    return text.translate(_TEXT_SIGNS)
