"""The real nodes of one sandbox: their start, their programs, what tests do to them, their end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from berth_sandbox import certificates, processes
from berth_sandbox.configuration import build_client_kubeconfig, write_kubeconfig
from berth_sandbox.errors import SandboxError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import Ports
from berth_sandbox.readiness import wait_for
from berth_sandbox.real_nodes import configuration, namespaces
from berth_sandbox.real_nodes.cgroups import SandboxCgroups
from berth_sandbox.real_nodes.images import NodeImages
from berth_sandbox.real_nodes.requirements import Machine

NODE_PREFIX: Final = "real-"

_NETWORK: Final = "node-network"
_RELAY: Final = "node-relay"
_AT_ONCE: Final = 4
_POLL_SECONDS: Final = 0.05
_ANSWERS_WITHIN_SECONDS: Final = 300.0
_END_WITHIN_SECONDS: Final = 120.0
_IMAGE_NAMESPACE: Final = "k8s.io"


class NodeProgram(StrEnum):
    """A program of every real node."""

    KUBELET = "kubelet"
    CONTAINERD = "containerd"


@dataclass(frozen=True, slots=True)
class RealNodes:
    """Handle of the real nodes of the sandbox with this folder."""

    folder: SandboxFolder
    ports: Ports
    context: str
    count: int

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(f"{NODE_PREFIX}{number}" for number in range(1, self.count + 1))

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of all processes that there should be, as in their logs."""
        if not self.count:
            return ()
        each = (name for node in self.names for name in (node, *(process_name(node, part) for part in NodeProgram)))
        return (_NETWORK, _RELAY, *each)

    def start(self, binaries: Mapping[str, Path], images: NodeImages, *, deadline: float) -> None:
        """Start all nodes; returns when their kubelets run, before the nodes are ready."""
        self._cgroups.make(self.names)
        self._spawn(_NETWORK, namespaces.build_network_holder(self._ready(_NETWORK), images.program, self.count))
        self._wait(_NETWORK, self._ready(_NETWORK).exists, deadline)
        self.start_relay(deadline=deadline)
        self._write_credentials()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda node: self._start_node(node, binaries["kubelet"], images, deadline), self.names))

    def start_relay(self, *, deadline: float) -> None:
        """Start the relay between the nodes' network and this machine's loopback."""
        module = f"{__package__}.relay"
        socket_file = self.folder.relay_socket
        socket_file.unlink(missing_ok=True)
        arguments = (str(self._holder(_NETWORK)), str(self.ports.api_server), str(socket_file))
        self._spawn(_RELAY, (sys.executable, "-P", "-m", module, *arguments))
        self._wait(_RELAY, socket_file.exists, deadline)

    def _start_node(self, node: str, kubelet: Path, images: NodeImages, deadline: float) -> None:
        number = self._number(node)
        self._write_configuration(node, number)
        (self.folder.node(node) / NodeProgram.KUBELET).symlink_to(kubelet)
        holder = namespaces.build_node_holder(self._ready(node), images.program, self._holder(_NETWORK))
        self._spawn(node, holder)
        self._wait(node, self._ready(node).exists, deadline)
        self.start_program(node, NodeProgram.CONTAINERD)
        self.import_images(node, images.archive)
        self.start_program(node, NodeProgram.KUBELET)

    def _write_credentials(self) -> None:
        """Write a client certificate and a kubeconfig for each kubelet."""
        from berth_sandbox.key_files import write_client  # noqa: PLC0415 - needs what an extra brings

        for node in self.names:
            identity = certificates.ClientIdentity(node, f"system:node:{node}", ("system:nodes",))
            write_client(self.folder, identity, now=datetime.now(UTC))
            body = build_client_kubeconfig(self.folder, self.ports, identity, self.context)
            write_kubeconfig(self.folder.user_kubeconfig(node), body)

    def _write_configuration(self, node: str, number: int) -> None:
        place = self.folder.node(node)
        networks = place / "networks"
        networks.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolver = place / "resolv.conf"
        resolver.write_text("", encoding="ascii")
        kubelet = configuration.build_kubelet_config(
            number,
            cgroup=self._cgroups.node_path(node),
            authority=self.folder.certificate(certificates.AUTHORITY),
            resolver=resolver,
            shape=configuration.RealNodeShape(),
            machine=configuration.MachineSize.read(),
        )
        (place / "kubelet.json").write_text(json.dumps(kubelet), encoding="ascii")
        network = configuration.build_pod_network(number)
        (networks / "10-pods.conflist").write_text(json.dumps(network), encoding="ascii")
        overlay = "overlay" in Path("/proc/filesystems").read_text(encoding="ascii").split()
        containerd = configuration.build_containerd_config(
            plugins=Machine().network_plugin_folder() or "",
            networks=networks,
            snapshotter="overlayfs" if overlay else "native",
        )
        (place / "containerd.toml").write_text(containerd, encoding="utf-8")

    def _answers(self, node: str) -> bool:
        """Return whether the node's containerd answers."""
        return self._run(node, ("ctr", "version")).returncode == 0

    def import_images(self, node: str, archive: Path) -> None:
        """Load the images of a Docker archive into one node; raises `SandboxError`."""
        done = self._run(node, ("ctr", "-n", _IMAGE_NAMESPACE, "images", "import", str(archive)))
        if done.returncode != 0:
            raise SandboxError(f"{node} cannot import {archive}: {done.stdout.strip()}")

    def start_program(self, node: str, program: NodeProgram) -> None:
        """Start a program of a node, which must not be running.

        Returns once containerd answers: a kubelet that starts before that ends.
        """
        place = self.folder.node(node)
        command: tuple[str, ...]
        match program:
            case NodeProgram.CONTAINERD:
                command = ("containerd", "--config", str(place / "containerd.toml"), "--log-level", "warn")
            case NodeProgram.KUBELET:
                command = (
                    str(place / NodeProgram.KUBELET),
                    f"--config={place / 'kubelet.json'}",
                    f"--kubeconfig={self.folder.user_kubeconfig(node)}",
                    "--root-dir=/var/lib/kubelet",
                    f"--hostname-override={node}",
                    f"--node-ip={namespaces.node_address(self._number(node))}",
                    f"--node-labels={configuration.REAL_NODE_LABEL}={configuration.REAL_NODE_LABEL_VALUE}",
                    "--v=2",
                )
            case _:
                assert_never(program)
        name = process_name(node, program)
        self._spawn(name, namespaces.build_node_command(self._holder(node), command))
        if program is NodeProgram.CONTAINERD:
            self._wait(name, lambda: self._answers(node), time.monotonic() + _ANSWERS_WITHIN_SECONDS)

    def kill(self, node: str, program: NodeProgram) -> None:
        """Kill a program of a node and wait until it is gone; the pods run on."""
        name = process_name(node, program)
        self.signal(node, program, signal.SIGKILL)
        deadline = time.monotonic() + _END_WITHIN_SECONDS
        while processes.is_present(name, self.folder):
            if time.monotonic() > deadline:
                raise SandboxError(f"{program} of {node} does not end")
            time.sleep(_POLL_SECONDS)

    def signal(self, node: str, program: NodeProgram, number: signal.Signals) -> None:
        """Send a signal to a program of a node; raises `SandboxError` when it does not run."""
        starter = processes.find_pid(process_name(node, program), self.folder)
        children = () if starter is None else processes.find_children(starter)
        if starter is None or not children:
            raise SandboxError(f"{program} of {node} is not running")
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number is signal.SIGCONT:  # nsenter stops with its child
            with suppress(ProcessLookupError):
                os.kill(starter, number)

    def live(self) -> dict[str, int]:
        """Return the processes that run, with their pids."""
        pids = {name: processes.find_pid(name, self.folder) for name in self.programs}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def build_command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command that runs the given one in the nodes' network."""
        return namespaces.build_network_command(self._holder(_NETWORK), command)

    def connect(self, address: str, port: int, *, timeout_seconds: float) -> socket.socket:
        """Return a connection to an address in the nodes' network; raises OSError."""
        stream = namespaces.open_socket(self._holder(_NETWORK))
        try:
            stream.settimeout(timeout_seconds)
            stream.connect((address, port))
        except BaseException:
            stream.close()
            raise
        return stream

    @property
    def _cgroups(self) -> SandboxCgroups:
        return SandboxCgroups(self.folder.root)

    def _number(self, node: str) -> int:
        return self.names.index(node) + 1

    def _ready(self, name: str) -> Path:
        """Return the file by which a holder reports that its namespaces are set up."""
        return self.folder.root / "ready" / name

    def _holder(self, name: str) -> int:
        processes.wait_until_named(name, self.folder)  # it may just be becoming the pause program
        pid = processes.find_pid(name, self.folder)
        if pid is None:
            raise SandboxError(f"{name} is not running")
        return pid

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        (self.folder.root / "ready").mkdir(mode=0o700, exist_ok=True)
        processes.spawn(name, self._cgroups.wrap(command), self.folder, search_path=Machine().search_path)

    def _run(self, node: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in a node to its end, in the cgroup of the daemons."""
        wrapped = self._cgroups.wrap(namespaces.build_node_command(self._holder(node), command))
        return subprocess.run(  # noqa: S603 - fixed commands
            wrapped,
            env=processes.component_environment(Machine().search_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )

    def _wait(self, name: str, condition: Callable[[], bool], deadline: float) -> None:
        wait_for(condition, component=name, folder=self.folder, deadline=deadline)


def process_name(node: str, program: NodeProgram) -> str:
    """Return the name of a program's log and pid file."""
    return f"{node}-{program}"
