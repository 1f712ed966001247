"""Tests are collected without the garbage collector and without parsing, and each file is compiled by one worker."""

import fcntl
import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

from berth_service.quick_imports import quick_imports
from cluster_fixtures import is_worker


def leave_constants_out() -> None:
    """Have Hypothesis draw no constants from the modules that happen to be loaded.

    To find them it parses all of Berth in each worker, three seconds of a processor each, and what a property is tried
    on would depend on the tests before it.
    """
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without it, and let later collections skip what there is by then: modules and items stay to the end."""
    with quick_imports():
        yield
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import a file in one worker at a time: on a fresh checkout the others load what the first one has compiled.

    Workers collect the same files in the same order, so that all would compile each of them at the same moment.
    """
    if not (is_worker(collector.config) and isinstance(collector, pytest.Module)):
        return (yield)
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)
