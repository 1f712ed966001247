"""What all tests share: the sandbox of a run, the signals it hears, quiet logs, no terminal."""

import os
import signal
import sys
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

import quick_collection
import shares_of_workers
from cluster_fixtures import (
    paced_sandbox,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    pytest_xdist_setupnodes,
    sandbox,
)
from cluster_reports import pytest_runtest_makereport
from log_lines import keep_quiet

__all__ = [
    "paced_sandbox",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "pytest_xdist_setupnodes",
    "sandbox",
]


ORDER: Final = 20_261
"""The seed of the order in which tests run. `--randomly-seed=$RANDOM` looks for tests that depend on it."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what is started, also where this run was told to ignore it, as in the background of a shell.

    A generated example may take as long as a busy machine needs: time is measured by benchmarks, not by tests. Each run
    generates the same ones, in the same order of tests; `--hypothesis-profile=search` looks for new ones. What the
    tests start on this machine is asked without the environment's proxy, which is for what they fetch. Programs keep
    what they compile, also where the environment forbids it: compiling takes a third of a command's processor time.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if getattr(config.option, "randomly_seed", None) == "default":
        config.option.randomly_seed = ORDER
    settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("berth", settings.get_profile("search"), derandomize=True)
    settings.load_profile("berth")
    if config.getoption("--hypothesis-profile", None) != "search":
        quick_collection.leave_constants_out()
    keep_quiet()
    config.pluginmanager.register(shares_of_workers)
    config.pluginmanager.register(quick_collection)
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1", "localhost")))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs write as wide and as plain as where no terminal is, whatever terminal a run is started in."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
