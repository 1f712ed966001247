"""Texts for people: counted nouns, cut lists and printable characters."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final


def count(number: int, noun: str) -> str:
    """Return a number with a noun.

    The noun takes an s unless the number is one.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_few(names: Sequence[str], most: int) -> str:
    """Return names up to a number, and how many more there are."""
    more_text = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more_text}"


def percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"


# --- printable -------------------------------------------------------------------------------------------------------
# Text for terminals: control characters, which could move the cursor or change colours, become visible signs.

_PICTURES: Final = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_SIGNS: Final = _PICTURES | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
"""The pictures that Unicode has of the first 32 and of delete; the second 32 have none."""

_TEXT_SIGNS: Final = {code: sign for code, sign in _SIGNS.items() if chr(code) not in "\n\t"}


def printable_line(text: str) -> str:
    """Return a text as one line without control characters.

    A new line becomes a blank.
    """
    return " ".join(text.splitlines()).translate(_SIGNS)


def printable_text(text: str) -> str:
    """Return a text without control characters but new lines and tabs."""
    return text.translate(_TEXT_SIGNS)
