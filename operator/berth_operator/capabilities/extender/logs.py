"""The log events of the extender."""

from typing import Final

LISTENING: Final = "extender of Volcano's scheduler listening"
