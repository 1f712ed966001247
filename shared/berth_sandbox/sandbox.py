"""The handle of a running sandbox: start, find, use, disturb, stop."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec import structs

from berth_core import DEFAULT_NAMESPACE, Node
from berth_kube import NAMESPACES, NO_RETRIES, NODES, AlreadyExistsError, ClientSettings, KubeClient
from berth_sandbox import bootstrap, processes
from berth_sandbox.binaries import find_binaries
from berth_sandbox.components import SERVICES, Binaries, Component
from berth_sandbox.configuration import build_token_kubeconfig, context_name, write_kubeconfig
from berth_sandbox.errors import SandboxError
from berth_sandbox.folder_claims import claim_folder
from berth_sandbox.folders import SandboxFolder, named_folder, remove_folder, state_folder
from berth_sandbox.health import SandboxHealth, count_nodes, usable_nodes
from berth_sandbox.ports import Ports, free_port
from berth_sandbox.pretended_nodes import NodeShape, create_node, node_names, remove_leases
from berth_sandbox.readiness import wait_for, wait_until_ready
from berth_sandbox.real_nodes.images import NodeImages, build_images
from berth_sandbox.real_nodes.nodes import NodeProgram, RealNodes, process_name
from berth_sandbox.real_nodes.requirements import require_folder, require_real_nodes
from berth_sandbox.records import SandboxRecord, read_record, write_record
from berth_sandbox.settings import SandboxSettings
from berth_sandbox.startup import Progress, bring_up, connect_as_admin, expected_components, start_components
from berth_sandbox.watchdog import Watchdog

DEFAULT_NAME: Final = "default"
EXAMPLE_NAMESPACE: Final = "ml"
"""Where the Reservations of the pages are."""

_NODES_AT_ONCE: Final = 8


def _say_nothing(_line: str) -> None: ...


class Sandbox:
    """A real control plane with nodes that kwok plays.

    As a context manager it stops at the end of the block, on Ctrl-C, and also when its process is killed. After
    `detach` it stays up until any process calls `stop`.
    """

    def __init__(self, folder: SandboxFolder, record: SandboxRecord, watchdog: Watchdog | None) -> None:
        self._folder = folder
        self._record = record
        self._watchdog = watchdog

    @classmethod
    def start(
        cls,
        settings: SandboxSettings | None = None,
        *,
        progress: Progress = _say_nothing,
        binaries: Binaries | None = None,
    ) -> Self:
        """Start a sandbox and return it once every component and node is ready.

        Raises `SandboxUnavailableError` when there are no binaries and none can be built, `ComponentError` when a
        component fails, `SandboxNameError` when the name is taken. Nothing is left behind then.
        """
        settings = settings or SandboxSettings()
        if settings.real_nodes:
            require_real_nodes(settings.kubernetes)
        binaries = binaries or find_binaries(
            progress, kubernetes=settings.kubernetes, volcano=settings.volcano, kubelet=settings.real_nodes > 0
        )
        images = build_images(progress) if settings.real_nodes else None
        with claim_folder(settings.name) as folder:
            watchdog = Watchdog(folder)
            try:
                if settings.real_nodes:
                    require_folder(folder.root)
                sandbox = cls(folder, bring_up(folder, binaries, settings, progress), watchdog)
                if images is not None:
                    sandbox.start_real_nodes(images, progress)
                if settings.nodes:
                    progress(f"adding {settings.nodes} nodes")
                    sandbox.add_nodes(settings.nodes)
                if settings.services:
                    sandbox.start_services(progress)
            # Ctrl-C as well: a start that is broken off leaves no process behind.
            except BaseException:
                _clean_up(folder, watchdog)
                raise
        return sandbox

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Self:
        """Return the sandbox of a name; raise `SandboxNameError` if none is up."""
        folder = SandboxFolder(named_folder(name))
        return cls(folder, read_record(folder), None)

    @classmethod
    def stop_named(cls, name: str = DEFAULT_NAME) -> bool:
        """Stop a named sandbox or remove a failed start's leftovers; return whether there was any."""
        folder = SandboxFolder(named_folder(name))
        if not folder.root.exists():
            return False
        _clean_up(folder, None)
        return True

    @staticmethod
    def is_up(name: str = DEFAULT_NAME) -> bool:
        """Return whether the API server of a named sandbox lives, after a start that was not broken off."""
        folder = SandboxFolder(named_folder(name))
        return folder.record.exists() and Component.API_SERVER in processes.find_live(folder)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of sandboxes that left a record: they are up, or were when their machine stopped."""
        folder = state_folder()
        entries = folder.iterdir() if folder.is_dir() else ()
        return tuple(sorted(entry.name for entry in entries if SandboxFolder(entry).record.exists()))

    def detach(self) -> None:
        """Let the sandbox outlive this process."""
        if self._watchdog is not None:
            self._watchdog.dismiss(keep=True)
            self._watchdog = None

    def stop(self) -> None:
        """Stop all components and remove the folder; a second call does nothing."""
        _clean_up(self._folder, self._watchdog)
        self._watchdog = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watchdog is not None:
            self.stop()

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
        """The API server's log of calls by Berth's accounts, one JSON object a line."""
        return self._folder.audit_log

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._folder.kubeconfig

    def connect(self) -> KubeClient:
        """Return a client with all rights, for the caller to close."""
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

    def start_services(self, progress: Progress = _say_nothing) -> None:
        """Start Berth's services, with the rights of the chart, and wait until they are ready.

        They stay as long as the sandbox. The namespace of the pages' examples exists from then on, too.
        """
        progress("starting " + ", ".join(SERVICES))
        for service in SERVICES:
            self.service_account_kubeconfig(service.value)
        ports = replace(self.ports, operator=free_port(), descheduler=free_port())
        self._record = structs.replace(self._record, ports=ports, settings=replace(self.settings, services=True))
        write_record(self._folder, self._record)
        start_components(SERVICES, self._record.place(self._folder))
        deadline = time.monotonic() + self.settings.timeout_seconds
        with self.connect() as client:
            with suppress(AlreadyExistsError):
                client.create(NAMESPACES, {"metadata": {"name": EXAMPLE_NAMESPACE}})
            wait_for(
                lambda: bootstrap.takes_pods(client, EXAMPLE_NAMESPACE),
                component=Component.CONTROLLER_MANAGER,
                folder=self._folder,
                deadline=deadline,
            )
        wait_until_ready(SERVICES, self._folder, ports, deadline=deadline)

    def add_services(self, progress: Progress = _say_nothing) -> bool:
        """Start Berth's services unless both live; return whether that was needed.

        If one of them lives alone, both are started again.
        """
        if set(SERVICES) <= self.live_components().keys():
            return False
        processes.end(SERVICES, self._folder)
        self.start_services(progress)
        return True

    def add_nodes(self, count: int, shape: NodeShape | None = None, *, prefix: str = "node-") -> tuple[str, ...]:
        """Add nodes, wait until all are ready and return their names.

        Their numbers follow those of the existing nodes with the prefix. Without a shape they are as the settings say.
        """
        shape = shape or NodeShape(
            cpu=self.settings.node_cpu, memory=self.settings.node_memory, pods=self.settings.node_pods
        )
        with self.connect() as client, ThreadPoolExecutor(_NODES_AT_ONCE) as pool:
            node_names_present = [node.metadata.name for node in client.list(NODES, type=Node).items]
            names = node_names(prefix, sum(name.startswith(prefix) for name in node_names_present), count)
            # `map` raises the error of a call only when its result is taken.
            list(pool.map(lambda name: create_node(client, name, shape), names))
            wait_for(
                lambda: set(names) <= usable_nodes(client),
                component=Component.KWOK,
                folder=self._folder,
                deadline=time.monotonic() + self.settings.timeout_seconds,
            )
        return names

    def start_real_nodes(self, images: NodeImages, progress: Progress = _say_nothing) -> None:
        """Start the real nodes of the settings and wait until all are ready."""
        nodes = self.real_nodes
        progress(f"starting {nodes.count} real nodes")
        deadline = time.monotonic() + self.settings.timeout_seconds
        nodes.start(self._record.place(self._folder).binaries, images, deadline=deadline)
        with self.connect() as client:
            for node in nodes.names:
                wait_for(
                    lambda node=node: node in usable_nodes(client),  # type: ignore[misc]
                    component=process_name(node, NodeProgram.KUBELET),
                    folder=self._folder,
                    deadline=deadline,
                )

    @property
    def real_nodes(self) -> RealNodes:
        """The real nodes, of which there may be none."""
        return self._record.real_nodes(self._folder)

    def read_health(self) -> SandboxHealth:
        """Return which components are alive and how many nodes are ready."""
        live = self.live_components()
        nodes, ready = 0, 0
        if Component.API_SERVER in live:
            # That the API server does not answer now is part of the report, and is not waited for.
            with connect_as_admin(self._folder, ClientSettings(retries=NO_RETRIES)) as client:
                nodes, ready = count_nodes(client)
        expected = frozenset(expected_components(self.settings))
        return SandboxHealth(
            components=live,
            expected=expected,
            node_programs=self.real_nodes.live(),
            expected_node_programs=frozenset(self.real_nodes.programs),
            nodes=nodes,
            ready_nodes=ready,
        )

    def live_components(self) -> dict[Component, int]:
        """Return the components that are alive and their pids."""
        return processes.find_live(self._folder)

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a component; raises `SandboxError` when it is not alive."""
        if not processes.send_signal(Component(component), self._folder, number):
            raise SandboxError(f"{component} is not running")

    def suspend(self, component: str) -> None:
        """Stop a component with SIGSTOP; it keeps its connections and is silent."""
        self.kill(component, signal.SIGSTOP)

    def resume(self, component: str) -> None:
        self.kill(component, signal.SIGCONT)

    def restart(self, component: str) -> None:
        """Restart a component, killing it first if it is alive, and wait until it is ready."""
        to_restart = Component(component)
        processes.end((to_restart,), self._folder)
        if to_restart is Component.KWOK:
            with self.connect() as client:
                remove_leases(client)
        start_components((to_restart,), self._record.place(self._folder))
        deadline = time.monotonic() + self.settings.timeout_seconds
        wait_until_ready((to_restart,), self._folder, self.ports, deadline=deadline)


def _clean_up(folder: SandboxFolder, watchdog: Watchdog | None) -> None:
    """End all components and remove the folder; after Ctrl-C the watchdog does the rest."""
    processes.end_all(folder)
    remove_folder(folder.root)
    if watchdog is not None:
        watchdog.dismiss(keep=False)
