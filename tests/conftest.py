"""Owns what all tests share: the sandbox of a run, which signals it hears, how long a generated example may take."""

import signal

from hypothesis import settings

from cluster_fixtures import pytest_collection_finish, sandbox

__all__ = ["pytest_collection_finish", "sandbox"]


def pytest_configure() -> None:
    """Let Ctrl-C reach what is started, also where this run was told to ignore it, as in the background of a shell.

    A generated example may take as long as a busy machine needs: time is measured by benchmarks, not by tests.
    """
    settings.register_profile("berth", deadline=None)
    settings.load_profile("berth")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
