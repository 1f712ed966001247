"""`berth demo` as people start it, each once, beside the other tests."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeAlias

import pytest

from background_runs import BackgroundRun
from berth_descheduler.capabilities.demo.cli.scenes import SCENES
from service_processes import script

LARGE: Final = "60 nodes"
DEMOS: Final[Mapping[str, tuple[str, ...]]] = {
    LARGE: ("--nodes", "60", "--seed", "7"),
    **{scene: ("--scene", scene) for scene in SCENES},
}
"""Options by name."""

_DEMO_SECONDS: Final = 900.0
"""For one, beside other tests."""

Demos: TypeAlias = Mapping[str, BackgroundRun[subprocess.CompletedProcess[str]]]


def run_demo(*options: str, timeout_seconds: float = _DEMO_SECONDS) -> subprocess.CompletedProcess[str]:
    command = [script("berth"), "demo", "--output", "json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)


@pytest.fixture(scope="session")
def demos(request: pytest.FixtureRequest) -> Iterator[Demos]:
    """Begin those that tests of the run ask for by the parameter `demo`."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {call.params["demo"] for call in calls if call is not None and "demo" in call.params}
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(BackgroundRun(f"demo {name}", partial(run_demo, *options), yields=True))
            for name, options in DEMOS.items()
            if name in wanted
        }
