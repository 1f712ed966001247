"""The sandbox that the cluster tests of one run share, its building, and the check that nothing else is touched."""

import json
import os
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import NODES, PODS, QUEUES, RESERVATIONS, REVOCABLE_ZONES, Resource
from berth_sandbox.binaries import find_binaries
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.real_nodes.requirements import refusal_of_machine
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import Pace, SandboxSettings
from control_planes import control_plane
from waiting import eventually

REAL_NODES: Final = "real_nodes"
"""Marker of the tests that start real nodes on this machine."""
_LEFT_OUT: Final = pytest.StashKey[list[str]]()
_AMPLE_BYTES: Final = 12 << 30
"""Enough for five such control planes at once, and for the tests; CI machines may have 7 GB."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of real nodes where no installation brings these, and note which files that concerns.

    Where only programs are missing the tests are not left out: they fail, and say what to install.
    """
    concerned = [item for item in items if item.get_closest_marker(REAL_NODES)]
    refusal = refusal_of_machine() if concerned else ""
    if refusal:
        items[:] = [item for item in items if item not in concerned]
        config.hook.pytest_deselected(items=concerned)
        counts = Counter(item.nodeid.split("::")[0] for item in concerned)
        config.stash[_LEFT_OUT] = [f"left out: {file}, {count} tests: {refusal}" for file, count in counts.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the files that were left out; `.ci/run` repeats these lines at its end."""
    for line in config.stash.get(_LEFT_OUT, []):
        terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a class of the plugin that runs several processes
    """Take over what a worker process has left out; all of them leave out the same."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a worker process has left out to the process that reports."""
    if is_worker(session.config):
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, [])  # type: ignore[attr-defined]


def is_worker(config: pytest.Config) -> bool:
    """Return whether this is one of several processes that share the tests of a run."""
    return hasattr(config, "workeroutput")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Build what cluster tests need before worker processes begin, which show no progress.

    Only those know which tests there are; here the expression of markers tells, in a run of all folders.
    """
    chosen, reporter = config.option.markexpr, config.pluginmanager.get_plugin("terminalreporter")
    is_deep = "not deep" not in chosen
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    if reporter is None or config.option.collectonly or not is_whole:
        return
    with suppress(SandboxUnavailableError):
        find_binaries(
            reporter.write_line,
            kubernetes=SandboxSettings().kubernetes,
            volcano=is_deep and "not cluster" not in chosen,
            kubelet=is_deep and "not real_nodes" not in chosen and not refusal_of_machine(),
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the cluster tests need before the first test begins, so that no test's time limit counts it.

    Where that fails, the tests that need it fail, each with the reason.
    """
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if wanted and reporter is not None and not session.config.option.collectonly:
        volcano = any("volcano_sandbox" in getattr(item, "fixturenames", ()) for item in session.items)
        real = any(item.get_closest_marker(REAL_NODES) for item in session.items)
        with suppress(SandboxUnavailableError):
            find_binaries(reporter.write_line, kubernetes=SandboxSettings().kubernetes, volcano=volcano, kubelet=real)
    spend_memory(os.environ, _memory_bytes())


def spend_memory(environ: MutableMapping[str, str], memory_bytes: int) -> None:
    """Let what is started from now on collect garbage later, where there is memory for that.

    An API server takes a sixth less processor time and 150 to 400 MB more, and a control plane up to 1.4 GB in all.
    """
    if memory_bytes >= _AMPLE_BYTES:
        environ.setdefault("GOGC", "400")


def _memory_bytes() -> int:
    """Return the memory of this machine, or of the container that this is."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # "max" is no number
        memory_bytes = min(memory_bytes, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return memory_bytes


@contextmanager
def shared_control_plane(pace: Pace) -> Iterator[Sandbox]:
    """Yield a control plane without nodes, with both schedulers, whose policies must refuse nothing of Berth's own."""
    with control_plane(SandboxSettings(second_scheduler=True, pace=pace)) as sandbox:
        yield sandbox
        refused = refused_by_policies(sandbox)
        assert not refused, "\n".join(refused)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Yield the control plane that the tests of a run share."""
    with shared_control_plane(Pace.QUICK) as started:
        yield started


@pytest.fixture(scope="module")
def paced_sandbox() -> Iterator[Sandbox]:
    """Yield one on which pods take as long as on real nodes, for few modules: an idle one costs processor time."""
    with shared_control_plane(Pace.REAL) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a module leaves something on the shared control plane that counts for all pods of other modules.

    Reservations and pods go with their namespaces, which end in the background, or with an operator that was stopped
    before: they are removed here, so that no other module's programs see them.
    """
    own = [item for item in request.session.items if item.nodeid.startswith(f"{request.node.nodeid}::")]
    shared = any("sandbox" in getattr(item, "fixturenames", ()) for item in own)
    # Asked for ahead: at the end pytest gives only what the first test of the module has asked for.
    used: Sandbox | None = request.getfixturevalue("sandbox") if shared else None
    yield
    if used is not None:
        with used.connect() as client:
            assert names_of(client, NODES, QUEUES, REVOCABLE_ZONES) == []
            eventually("no Reservation and no pod is left", lambda: not remove_what_is_left(client), seconds=120)


def names_of(client: KubeClient, *resources: Resource) -> list[str]:
    return [raw["metadata"]["name"] for resource in resources for raw in client.list(resource).items]


def remove_what_is_left(client: KubeClient) -> bool:
    """Delete all Reservations and pods, and return whether there were any."""
    left = [(resource, raw["metadata"]) for resource in (RESERVATIONS, PODS) for raw in client.list(resource).items]
    for resource, metadata in left:
        with suppress(NotFoundError):
            client.delete(resource, metadata["name"], namespace=metadata["namespace"], grace_seconds=0)
    return bool(left)


def refused_by_policies(sandbox: Sandbox) -> list[str]:
    """Return what Berth's own policies said to its programs, which a test's clients are not named like."""
    whole, _, _ = sandbox.audit_log.read_text(encoding="utf-8").rpartition("\n")
    named = (line for line in whole.splitlines() if "ValidatingAdmissionPolicy 'berth-" in line)
    entries = [json.loads(line) for line in named]
    return [entry["responseStatus"]["message"] for entry in entries if entry["userAgent"].startswith("berth-")]
