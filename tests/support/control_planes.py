"""The way of all tests and benchmarks to a control plane of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from berth_sandbox.configuration import CONTEXT_PREFIX
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings


def say_nothing(_: str) -> None:
    """Report no progress, for what prints its own figures."""


@contextmanager
def control_plane(
    settings: SandboxSettings | None = None, *, progress: Callable[[str], None] = print
) -> Iterator[Sandbox]:
    """Yield a sandbox that has been started for the caller alone; a missing binary is a failure, never a skip."""
    with Sandbox.start(settings or SandboxSettings(), progress=progress) as sandbox:
        refuse_other_contexts(sandbox.context)
        yield sandbox


def refuse_other_contexts(context: str) -> None:
    """Fail the test run when a context is not a sandbox's."""
    if not context.startswith(CONTEXT_PREFIX):
        pytest.exit(f"cluster tests run on {CONTEXT_PREFIX}* contexts only, not on {context!r}", returncode=3)
