"""The log events of evictions by others."""

from typing import Final

REQUESTS_SKIPPED: Final = "eviction requests are neither made nor answered"
