"""The handle of a running sandbox: start, find, use, disturb, stop."""

import datetime as dt
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import structs

from berth_core import DEFAULT_NAMESPACE, Node
from berth_core.decoding import decode_json
from berth_kube import (
    NAMESPACES,
    NO_RETRIES,
    NODES,
    AlreadyExistsError,
    ClientSettings,
    KubeClient,
    KubeError,
    connect,
)
from berth_sandbox import bootstrap, processes
from berth_sandbox.bootstrap import NodeShape, create_node, node_names, remove_leases
from berth_sandbox.builds import MANIFESTS_FOLDER, find_binaries
from berth_sandbox.certificates import KWOK
from berth_sandbox.components import (
    SERVICES,
    VOLCANO_COMPONENTS,
    Binaries,
    Component,
    ComponentPlace,
    build_command,
    build_token_kubeconfig,
    context_name,
    write_configuration,
    write_kubeconfig,
)
from berth_sandbox.errors import SandboxError, SandboxNameError
from berth_sandbox.folders import SandboxFolder, named_folder, remove_folder, state_folder, temporary_folder
from berth_sandbox.ports import PortReservation, Ports, free_port
from berth_sandbox.real_nodes.cgroups import SandboxCgroups
from berth_sandbox.real_nodes.images import NodeImages, build_images
from berth_sandbox.real_nodes.nodes import NodeProgram, RealNodes, process_name
from berth_sandbox.real_nodes.requirements import require_folder, require_real_nodes
from berth_sandbox.settings import SandboxSettings

# --- record ----------------------------------------------------------------------------------------------------------
# The record of a sandbox, by which another process can find, use and stop it.


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one sandbox; `started` is RFC 3339."""

    settings: SandboxSettings
    ports: Ports
    binaries: dict[str, str]
    started: str

    def place(self, folder: SandboxFolder) -> ComponentPlace:
        binaries = {name: Path(path) for name, path in self.binaries.items()}
        return ComponentPlace(binaries, folder, self.ports, self.settings.real_nodes)

    def real_nodes(self, folder: SandboxFolder) -> RealNodes:
        return RealNodes(folder, self.ports, context_name(self.settings.name), self.settings.real_nodes)


def write_record(folder: SandboxFolder, record: SandboxRecord) -> None:
    folder.record.write_bytes(msgspec.json.encode(record))


def read_record(folder: SandboxFolder) -> SandboxRecord:
    """Return the record; raises `SandboxNameError` if it is missing or unreadable."""
    try:
        return decode_json(folder.record.read_bytes(), SandboxRecord)
    except (OSError, msgspec.MsgspecError) as error:
        name = folder.root.name
        raise SandboxNameError(f"no sandbox {name!r} is up; `berth sandbox up --name {name}` starts one") from error


# --- health ----------------------------------------------------------------------------------------------------------

_CONTROLLERS_TAINT: Final = "node.kubernetes.io/"
"""Prefix of the taints that node controllers set and remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxHealth:
    """Live and expected components, and the nodes; `components` maps each live one to its pid."""

    components: dict[Component, int]
    expected: frozenset[Component]
    node_programs: dict[str, int]
    """The live processes of real nodes and their pids."""
    expected_node_programs: frozenset[str]
    nodes: int
    ready_nodes: int

    @property
    def complete(self) -> bool:
        """Return whether every component and every program of a real node is alive."""
        return self.expected <= self.components.keys() and self.expected_node_programs <= self.node_programs.keys()


def _count_nodes(client: KubeClient) -> tuple[int, int]:
    """Return the numbers of nodes and of usable ones, 0 for an unreachable server."""
    try:
        nodes = client.list(NODES, type=Node).items
    except KubeError:
        return 0, 0
    return len(nodes), sum(_is_usable(node) for node in nodes)


def _usable_nodes(client: KubeClient) -> set[str]:
    """Return the names of the nodes that pods can be scheduled to."""
    return {node.metadata.name for node in client.list(NODES, type=Node).items if _is_usable(node)}


def _is_usable(node: Node) -> bool:
    """Return whether a node is ready and without node controllers' taints."""
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return ready and not any(taint.key.startswith(_CONTROLLERS_TAINT) for taint in node.spec.taints)


# --- claims ----------------------------------------------------------------------------------------------------------
# Claim of a sandbox's folder: two starts under one name never share it.


@contextmanager
def claim_folder(name: str | None) -> Iterator[SandboxFolder]:
    """Yield an empty folder for a new sandbox, locked while it is filled.

    A dead sandbox's files in it are removed. Raises `SandboxNameError` if the name is taken.
    """
    if name is None:
        folder = SandboxFolder(temporary_folder())
        folder.make()
        yield folder
        return
    folder = SandboxFolder(named_folder(name))
    lock = _lock_folder(folder.root, name)
    try:
        live = processes.find_live(folder)
        if live:
            raise SandboxNameError(
                f"the sandbox {name!r} is already up; use it, or stop it with `berth sandbox down --name {name}`"
            )
        SandboxCgroups(folder.root).remove()
        _empty(folder.root)
        folder.make()
        yield folder
    finally:
        os.close(lock)


def _lock_folder(root: Path, name: str) -> int:
    """Create and lock the folder, again if a process that stops the sandbox removes it meanwhile."""
    while True:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(root, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == root.stat().st_ino:
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise SandboxNameError(f"the sandbox {name!r} is just being started by another process") from error
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _empty(root: Path) -> None:
    """Remove a folder's contents, not the folder."""
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


# --- startup ---------------------------------------------------------------------------------------------------------
# The order in which a sandbox comes up, from empty folder to ready control plane.

Progress = Callable[[str], None]
"""Takes one line of progress for the user."""

_FIRST = (Component.ETCD, Component.API_SERVER)


def bring_up(folder: SandboxFolder, binaries: Binaries, settings: SandboxSettings, progress: Progress) -> SandboxRecord:
    """Start all components, install Berth and return the record once all components are ready."""
    from berth_sandbox.key_files import write_certificates  # noqa: PLC0415 - needs what an extra brings

    deadline = time.monotonic() + settings.timeout_seconds
    now = dt.datetime.now(dt.UTC)
    reservation = PortReservation.make()
    try:
        record = SandboxRecord(
            settings=settings,
            ports=reservation.ports,
            binaries={name: str(path) for name, path in binaries.items()},
            started=now.isoformat(timespec="seconds"),
        )
        write_certificates(folder, now=now)
        write_configuration(folder, reservation.ports, settings)
        write_record(folder, record)
        _start_control_plane(record.place(folder), settings, deadline, progress)
    finally:
        reservation.release()
    return record


def _start_control_plane(place: ComponentPlace, settings: SandboxSettings, deadline: float, progress: Progress) -> None:
    """Start the API server first, then the rest, and install Berth meanwhile."""
    progress("starting etcd and kube-apiserver")
    start_components(_FIRST, place)
    processes.wait_until_ready(_FIRST, place.folder, place.ports, deadline=deadline)
    later = {*_FIRST, *VOLCANO_COMPONENTS, *SERVICES}
    second = tuple(component for component in expected_components(settings) if component not in later)
    progress("starting " + ", ".join(second))
    start_components(second, place)
    with connect_as_admin(place.folder) as client:
        bootstrap.restrict_kubelets(client, KWOK.user)
        bootstrap.install_berth(client)
    processes.wait_until_ready(second, place.folder, place.ports, deadline=deadline)
    with connect_as_admin(place.folder, ClientSettings(retries=NO_RETRIES)) as prober:
        processes.wait_for(
            lambda: bootstrap.is_installed(prober),
            component=Component.CONTROLLER_MANAGER,
            folder=place.folder,
            deadline=deadline,
        )
    if settings.volcano:
        _start_volcano(place, deadline, progress)


def _start_volcano(place: ComponentPlace, deadline: float, progress: Progress) -> None:
    """Start Volcano once its CRDs are served: otherwise its scheduler waits whole seconds for its queues."""
    progress("starting " + ", ".join(VOLCANO_COMPONENTS))
    manifests = place.binaries[Component.VOLCANO_SCHEDULER.binary].parent / MANIFESTS_FOLDER
    with connect_as_admin(place.folder, ClientSettings(retries=NO_RETRIES)) as client:
        defined = bootstrap.install_definitions(client, manifests)
        processes.wait_for(
            lambda: bootstrap.are_served(client, defined),
            component=Component.API_SERVER,
            folder=place.folder,
            deadline=deadline,
        )
    start_components(VOLCANO_COMPONENTS, place)
    processes.wait_until_ready(VOLCANO_COMPONENTS, place.folder, place.ports, deadline=deadline)


def expected_components(settings: SandboxSettings) -> tuple[Component, ...]:
    """Return the components that a sandbox of these settings has."""
    asked_for = dict.fromkeys(VOLCANO_COMPONENTS, settings.volcano) | {
        Component.SECOND_SCHEDULER: settings.second_scheduler,
        **dict.fromkeys(SERVICES, settings.services),
    }
    return tuple(component for component in Component if asked_for.get(component, True))


def connect_as_admin(folder: SandboxFolder, settings: ClientSettings | None = None) -> KubeClient:
    """Return a client with all rights."""
    return connect(kubeconfig=str(folder.kubeconfig), user_agent="berth-sandbox", settings=settings)


def start_components(components: Iterable[Component], place: ComponentPlace) -> None:
    """Start components without waiting for them."""
    for component in components:
        processes.spawn(component, build_command(component, place), place.folder)


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

    def __init__(self, folder: SandboxFolder, record: SandboxRecord, watchdog: processes.Watchdog | None) -> None:
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
            watchdog = processes.Watchdog(folder)
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
            processes.wait_for(
                lambda: bootstrap.takes_pods(client, EXAMPLE_NAMESPACE),
                component=Component.CONTROLLER_MANAGER,
                folder=self._folder,
                deadline=deadline,
            )
        processes.wait_until_ready(SERVICES, self._folder, ports, deadline=deadline)

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
            list(pool.map(lambda name: create_node(client, name, shape), names))
            processes.wait_for(
                lambda: set(names) <= _usable_nodes(client),
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
                processes.wait_for(
                    lambda node=node: node in _usable_nodes(client),  # type: ignore[misc]
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
            with connect_as_admin(self._folder, ClientSettings(retries=NO_RETRIES)) as client:
                nodes, ready = _count_nodes(client)
        expected = frozenset(expected_components(self.settings))
        return SandboxHealth(
            components=live,
            expected=expected,
            node_programs=self.real_nodes.live(),
            expected_node_programs=frozenset(self.real_nodes.programs),
            nodes=nodes,
            ready_nodes=ready,
        )

    # --- disturb ---

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
        processes.wait_until_ready((to_restart,), self._folder, self.ports, deadline=deadline)


def _clean_up(folder: SandboxFolder, watchdog: processes.Watchdog | None) -> None:
    """End all components and remove the folder; after Ctrl-C the watchdog does the rest."""
    processes.end_all(folder)
    remove_folder(folder.root)
    if watchdog is not None:
        watchdog.dismiss(keep=False)
