"""Owns the sandbox that the cluster tests of one run share, and the check that nothing else is ever touched.

It does not own sandboxes of special shapes: tests that need one start their own.
"""

from collections.abc import Iterator

import pytest

from berth_sandbox.configuration import CONTEXT_PREFIX
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings


def refuse_other_contexts(context: str) -> None:
    """Fail the test run when a context is not a sandbox's."""
    if not context.startswith(CONTEXT_PREFIX):
        pytest.exit(f"cluster tests run on {CONTEXT_PREFIX}* contexts only, not on {context!r}", returncode=3)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Yield a control plane without nodes, with both schedulers; never skipped, so a missing binary is a failure."""
    with Sandbox.start(SandboxSettings(second_scheduler=True), progress=print) as started:
        refuse_other_contexts(started.context)
        yield started
