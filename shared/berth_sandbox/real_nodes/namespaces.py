"""The namespaces of real nodes: one network for all nodes of a sandbox, mounts and processes for each node.

A process holds each of them. When the holder of a node ends, the kernel ends every process in that node's process
namespace, and with the last of them the mounts go. With the last process of the network its interfaces go.
"""

import ctypes
import os
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

API_ADDRESS: Final = "127.0.0.1"
"""Of the API server, on this machine's loopback and, by a relay, on that of the nodes' network."""

HIDDEN_FOLDERS: Final = ("/run", "/var/lib", "/var/log")
"""Folders of the machine in place of which a node has empty ones: kubelets and containerd have fixed paths there."""

# Addresses for documentation (RFC 5737); the pods have those for benchmarks (RFC 2544). No network in use has either.
_NODE_NETWORK: Final = "192.0.2"
_FIRST_ADDRESS: Final = 10
_CLONE_NEWNET: Final = 0x40000000
_KERNEL_SETTINGS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet would set for the whole machine if it did not read these values."""


def node_address(number: int) -> str:
    """Return the address of a node, counted from 1, in the private network."""
    return f"{_NODE_NETWORK}.{_FIRST_ADDRESS + number}"


def pod_network(number: int) -> str:
    """Return the network of a node's pods."""
    return f"198.18.{number}.0/24"


def build_network_holder(ready: Path, program: Path, nodes: int) -> tuple[str, ...]:
    """Return the command of the process that holds the network; it makes the file `ready` when that is set up."""
    # On the loopback interface: all nodes share one network, and no packet between them leaves it.
    addresses = [f"ip address add {node_address(number)}/32 dev lo" for number in range(1, nodes + 1)]
    steps = ["ip link set lo up", *addresses, "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    return ("unshare", "--net", *_hold(steps, ready, program))


def build_node_holder(ready: Path, program: Path, network: int) -> tuple[str, ...]:
    """Return the command of the process that holds a node in the network of another process."""
    steps = ["mount -t proc proc /proc", *(f"mount -t tmpfs -o mode=755 tmpfs {path}" for path in HIDDEN_FOLDERS)]
    steps.append("mkdir -p /run/settings /run/netns /run/containerd /var/lib/kubelet /var/log/containers")
    for name, value in _KERNEL_SETTINGS.items():
        copy = f"/run/settings/{name.replace('/', '-')}"
        steps += [f"echo {value} > {copy}", f"mount --bind {copy} /proc/sys/{name}"]
    # unshare forks for a process namespace; without `--kill-child` a node would outlive the process that is recorded.
    unshare = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
    return (*_enter_network(network), *unshare, *_hold(steps, ready, program))


def _hold(steps: Sequence[str], ready: Path, program: Path) -> tuple[str, ...]:
    """Return a shell that does all steps, makes the file `ready`, and becomes the pause program."""
    last_steps = (
        f"touch {shlex.quote(str(ready))}",
        f"exec {shlex.quote(str(program))} pause {shlex.quote(str(ready))}",
    )
    return ("/bin/sh", "-c", "\n".join(("set -e", *steps, *last_steps)))


def build_node_command(holder: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that runs the given one in a node, as a child of its own."""
    target = (f"--target={holder}", "--mount", "--net", f"--pid=/proc/{holder}/ns/pid_for_children")
    return ("nsenter", *target, "--", *command)


def build_network_command(holder: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that runs the given one in the nodes' network, with this machine's files and processes."""
    return (*_enter_network(holder), *command)


def _enter_network(holder: int) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{holder}/ns/net", "--")


def open_socket(holder: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Return a new socket of the nodes' network; the calling thread itself stays in its own.

    Raises OSError when the network is gone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # A thread's, as setns changes one thread only; /proc/self is the main thread.
    own_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        network = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
        try:
            _enter(libc, network)
        finally:
            os.close(network)
        try:
            return socket.socket(socket.AF_INET, kind)
        finally:
            _enter(libc, own_namespace)
    finally:
        os.close(own_namespace)


def _enter(libc: ctypes.CDLL, network: int) -> None:
    """Move the calling thread into a network; `os.setns` exists only from Python 3.12 on."""
    if libc.setns(network, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
