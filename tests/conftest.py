"""Owns what all tests share: the sandbox of a run, and which signals it hears."""

import signal

from cluster_fixtures import pytest_collection_finish, sandbox

__all__ = ["pytest_collection_finish", "sandbox"]


def pytest_configure() -> None:
    """Let Ctrl-C reach what is started, also where this run was told to ignore it, as in the background of a shell."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
