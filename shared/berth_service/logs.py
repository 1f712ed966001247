"""Format of logs: JSON lines for a service, a few plain lines for people; always to standard error."""

import logging
import sys
from typing import Any, Final

import structlog
from structlog.stdlib import ProcessorFormatter

from berth_core import printable_text

_NOISY: Final = ("aiohttp", "asyncio", "kopf", "kubernetes", "opentelemetry", "urllib3")


def configure_logs(level: str, *, as_json: bool) -> None:
    """Write all logs, ours and the libraries', from this level up."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
    )
    # Standard output is for what a command prints, which may be piped into jq.
    handler = logging.StreamHandler(sys.stderr)
    renderer = _as_json() if as_json else _as_text()
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=shared, processors=renderer))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf logs each event of an object, and urllib3 each connection, at levels that people ask for to see ours.
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _as_json() -> list[Any]:
    return [
        structlog.stdlib.add_logger_name,
        ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]


def _as_text() -> list[Any]:
    return [ProcessorFormatter.remove_processors_meta, structlog.dev.ConsoleRenderer(colors=False), _printable]


def _printable(_logger: Any, _method: str, line: str) -> str:  # noqa: ANN401 - what structlog passes
    """Return a line without control characters, which names and messages of others may contain."""
    return printable_text(line)
