"""The log events of zones."""

from typing import Final

FENCED: Final = "lent node fenced"
