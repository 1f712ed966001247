"""Owns the handle of a running sandbox: start, find, use, disturb, stop.

It does not own how components are started (`startup`) or where their binaries come from (`binaries`).
"""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from berth_core.names import DEFAULT_NAMESPACE
from berth_core.objects import Node
from berth_kube.client import ClientSettings, KubeClient
from berth_kube.resources import NODES
from berth_kube.retries import NO_RETRIES
from berth_sandbox import bootstrap, processes, readiness
from berth_sandbox.binaries import find_binaries
from berth_sandbox.claims import claim_folder
from berth_sandbox.components import Binaries, Component
from berth_sandbox.configuration import build_token_kubeconfig, context_name, write_kubeconfig
from berth_sandbox.errors import SandboxError
from berth_sandbox.folders import SandboxFolder, named_folder, remove_folder, state_folder
from berth_sandbox.health import SandboxHealth, count_nodes, usable_nodes
from berth_sandbox.nodes import NodeShape, build_node, node_names, remove_leases
from berth_sandbox.ports import Ports
from berth_sandbox.record import SandboxRecord, read_record
from berth_sandbox.settings import SandboxSettings
from berth_sandbox.startup import Progress, bring_up, connect_as_admin, expected_components, start_components
from berth_sandbox.watchdog import Watchdog

DEFAULT_NAME: Final = "default"

_NODES_AT_ONCE: Final = 8


def _say_nothing(_line: str) -> None:
    """Drop a line of progress."""


class Sandbox:
    """A real control plane with nodes that kwok plays.

    As a context manager it stops at the end of the block, on Ctrl-C, and also when its process is killed. After
    `detach` it stays up until `stop` is called, by whoever finds it.
    """

    def __init__(self, folder: SandboxFolder, record: SandboxRecord, watchdog: Watchdog | None) -> None:
        self._folder = folder
        self._record = record
        self._watchdog = watchdog

    # --- life ---

    @classmethod
    def start(
        cls,
        settings: SandboxSettings | None = None,
        *,
        progress: Progress = _say_nothing,
        binaries: Binaries | None = None,
    ) -> Self:
        """Start a sandbox and return it when every component and node is ready.

        Raises `SandboxUnavailableError` when there are no binaries and none can be built, `ComponentError` when a
        component fails, `SandboxNameError` when the name is taken. Nothing is left behind then.
        """
        settings = settings or SandboxSettings()
        binaries = binaries or find_binaries(progress)
        with claim_folder(settings.name) as folder:
            watchdog = Watchdog(folder)
            try:
                sandbox = cls(folder, bring_up(folder, binaries, settings, progress), watchdog)
                if settings.nodes:
                    progress(f"adding {settings.nodes} nodes")
                    sandbox.add_nodes(settings.nodes)
            except BaseException:
                _clean_up(folder, watchdog)
                raise
        return sandbox

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Self:
        """Return the sandbox that is up under a name; raise `SandboxNameError` when none is."""
        folder = SandboxFolder(named_folder(name))
        return cls(folder, read_record(folder), None)

    @classmethod
    def stop_named(cls, name: str = DEFAULT_NAME) -> bool:
        """Stop what is up under a name, or what a failed start left there; return whether there was anything."""
        folder = SandboxFolder(named_folder(name))
        if not folder.root.exists():
            return False
        _clean_up(folder, None)
        return True

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names under which sandboxes are up, or were when their machine stopped."""
        folder = state_folder()
        entries = folder.iterdir() if folder.is_dir() else ()
        return tuple(sorted(entry.name for entry in entries if SandboxFolder(entry).record.exists()))

    def detach(self) -> None:
        """Let the sandbox outlive this process."""
        if self._watchdog is not None:
            self._watchdog.dismiss(keep=True)
            self._watchdog = None

    def stop(self) -> None:
        """End every component of this sandbox and remove its folder; stopping twice is the same as once."""
        _clean_up(self._folder, self._watchdog)
        self._watchdog = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watchdog is not None:
            self.stop()

    # --- use ---

    @property
    def folder(self) -> Path:
        """The folder that holds everything of this sandbox."""
        return self._folder.root

    @property
    def settings(self) -> SandboxSettings:
        """What the sandbox was started with."""
        return self._record.settings

    @property
    def started(self) -> str:
        """When the sandbox was started, RFC 3339."""
        return self._record.started

    @property
    def ports(self) -> Ports:
        """Where the components listen on loopback."""
        return self._record.ports

    @property
    def context(self) -> str:
        """The name of the context in every kubeconfig of this sandbox."""
        return context_name(self.settings.name)

    @property
    def audit_log(self) -> Path:
        """Return the file in which the API server notes the calls of Berth's own accounts, one JSON object a line."""
        return self._folder.audit_log

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._folder.kubeconfig

    def connect(self) -> KubeClient:
        """Return a client that may do everything, for the caller to close."""
        return connect_as_admin(self._folder)

    def service_account_kubeconfig(self, name: str) -> Path:
        """Return a kubeconfig of `berth-operator` or `berth-descheduler` with exactly the chart's rights."""
        if name not in bootstrap.BERTH_ACCOUNTS:
            raise SandboxError(f"service account {name!r}: expected one of {', '.join(bootstrap.BERTH_ACCOUNTS)}")
        path = self._folder.user_kubeconfig(name)
        with self.connect() as client:
            token = bootstrap.request_token(client, name)
        body = build_token_kubeconfig(
            self._folder, self.ports, token=token, namespace=DEFAULT_NAMESPACE, context=self.context
        )
        write_kubeconfig(path, body)
        return path

    def add_nodes(self, count: int, shape: NodeShape | None = None, *, prefix: str = "node-") -> tuple[str, ...]:
        """Add nodes, numbered on from those of the prefix, wait until all are ready and return their names.

        Without a shape they are as the settings say.
        """
        shape = shape or NodeShape(
            cpu=self.settings.node_cpu, memory=self.settings.node_memory, pods=self.settings.node_pods
        )
        with self.connect() as client, ThreadPoolExecutor(_NODES_AT_ONCE) as pool:
            present = [node.metadata.name for node in client.list(NODES, type=Node).items]
            names = node_names(prefix, sum(name.startswith(prefix) for name in present), count)
            list(pool.map(lambda name: client.create(NODES, build_node(name, shape)), names))
            readiness.wait_for(
                lambda: set(names) <= usable_nodes(client),
                component=Component.KWOK,
                folder=self._folder,
                deadline=time.monotonic() + self.settings.timeout_seconds,
            )
        return names

    def read_health(self) -> SandboxHealth:
        """Return which components are alive and how many nodes are ready."""
        live = self.live_components()
        nodes, ready = 0, 0
        if Component.API_SERVER in live:
            with connect_as_admin(self._folder, ClientSettings(retries=NO_RETRIES)) as client:
                nodes, ready = count_nodes(client)
        expected = frozenset(expected_components(self.settings))
        return SandboxHealth(components=live, expected=expected, nodes=nodes, ready_nodes=ready)

    # --- disturb ---

    def live_components(self) -> dict[Component, int]:
        """Return the components that are alive and their pids."""
        return processes.find_live(self._folder)

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a component; raise `SandboxError` when it is not alive."""
        if not processes.send_signal(Component(component), self._folder, number):
            raise SandboxError(f"{component} is not running")

    def suspend(self, component: str) -> None:
        """Stop a component where it stands; it keeps its connections and says nothing."""
        self.kill(component, signal.SIGSTOP)

    def resume(self, component: str) -> None:
        """Let a suspended component go on."""
        self.kill(component, signal.SIGCONT)

    def restart(self, component: str) -> None:
        """End a component with SIGKILL if it is alive, start it anew and wait until it is ready."""
        wanted = Component(component)
        processes.end((wanted,), self._folder)
        if wanted is Component.KWOK:
            with self.connect() as client:
                remove_leases(client)
        start_components((wanted,), self._record.place(self._folder))
        deadline = time.monotonic() + self.settings.timeout_seconds
        readiness.wait_until_ready((wanted,), self._folder, self.ports, deadline=deadline)


def _clean_up(folder: SandboxFolder, watchdog: Watchdog | None) -> None:
    """End every component and remove the folder; Ctrl-C meanwhile leaves the rest to the watchdog."""
    processes.end(Component, folder)
    remove_folder(folder.root)
    if watchdog is not None:
        watchdog.dismiss(keep=False)
