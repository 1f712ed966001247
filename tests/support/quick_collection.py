"""Tests are collected without the garbage collector: what modules and items make stays to the end of the run."""

import gc
from collections.abc import Iterator

import pytest

from berth_service.quick_imports import quick_imports


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without it, and let later collections skip what there is by then."""
    with quick_imports():
        yield
    gc.freeze()
