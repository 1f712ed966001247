"""The log events of windows, and their keys."""

from typing import Final

OPENED: Final = "window opened"
CLOSED: Final = "window closed before its time"
MISSED: Final = "window missed"

KEY_WINDOW: Final = "window"
KEY_START: Final = "start"
