"""Text for terminals: control characters, which could move the cursor or change colours, become visible signs."""

from typing import Final

_PICTURES: Final = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_SIGNS: Final = _PICTURES | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
"""The pictures that Unicode has of the first 32 and of delete; the second 32 have none."""

_TEXT_SIGNS: Final = {code: sign for code, sign in _SIGNS.items() if chr(code) not in "\n\t"}


def printable_line(text: str) -> str:
    """Return a text as one line without control characters; a new line becomes a blank."""
    return " ".join(text.splitlines()).translate(_SIGNS)


def printable_text(text: str) -> str:
    """Return a text without control characters but new lines and tabs."""
    return text.translate(_TEXT_SIGNS)
