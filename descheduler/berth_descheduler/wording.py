"""Owns the small forms of words that several texts for people share: numbers with nouns, lists that are cut.

It does not own the texts.
"""

from collections.abc import Sequence
from typing import Final

ALL_IN_JSON: Final = "all of them with --output json"
"""What is said below a table that is cut."""


def count(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural with an s unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_few(names: Sequence[str], most: int) -> str:
    """Return names up to a number, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
