"""Where log lines of the programs go while tests run in their process: beside a test that failed, nowhere else."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


def keep_quiet() -> None:
    """Hand all log lines to `logging`, which pytest listens to while a test runs, and nobody in between."""
    structlog.configure(
        processors=[
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    logging.getLogger().addHandler(logging.NullHandler())


@contextmanager
def as_before() -> Iterator[None]:
    """Put back afterwards what a program configures."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**configured)
