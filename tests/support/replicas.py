"""Several operators beside a sandbox, and what stands in front of their webhooks as a Service does."""

import json
import random
import selectors
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from berth_sandbox.ports import LOOPBACK, free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster_reports import note_operator
from service_processes import WEBHOOK_SECONDS, script
from waiting import eventually

_LOOK_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 30.0
_PROBE_SECONDS: Final = 3.0
_READY_SECONDS: Final = 180.0


class Replica(ServiceProcess):
    """An operator that is started once it is ready, whether it leads or not."""

    def __init__(self, sandbox: Sandbox, folder: Path, balancer: "Balancer", *options: str) -> None:
        self.health_port = free_port()
        self.webhook_port = free_port()
        command = [
            script("berth-operator"),
            f"--kubeconfig={sandbox.service_account_kubeconfig('berth-operator')}",
            f"--webhook-port={self.webhook_port}",
            f"--webhook-url=https://{LOOPBACK}:{balancer.port}",
            f"--health-address={LOOPBACK}:{self.health_port}",
            "--drain-seconds=2",
            f"--webhook-timeout-seconds={WEBHOOK_SECONDS}",
            "--limit=slots=none,share=none",
            "--cluster-limit=share=none",
            *options,
        ]
        super().__init__(command, folder / f"berth-operator-{self.health_port}.log")
        note_operator(self, sandbox)

    def start(self) -> None:
        super().start()
        deadline = time.monotonic() + _READY_SECONDS
        while not self.is_ready():
            self.require_running()
            assert time.monotonic() < deadline, f"not ready: {self.tail()}"
            time.sleep(0.05)

    def is_ready(self, *, within_seconds: float = _ANSWER_SECONDS) -> bool:
        return bool(self._state(within_seconds).get("ready"))

    def is_leading(self) -> bool:
        return bool(self._state(_ANSWER_SECONDS).get("leading"))

    def _state(self, within_seconds: float) -> dict[str, Any]:
        url = f"http://{LOOPBACK}:{self.health_port}/readyz"
        try:
            try:
                with urllib.request.urlopen(url, timeout=within_seconds) as answer:
                    state: dict[str, Any] = json.load(answer)
            except urllib.error.HTTPError as error:
                state = json.load(error)
        except (OSError, HTTPException, ValueError):  # it may be killed in the middle of its answer
            return {}
        return state


class Balancer:
    """Sends each new connection to a replica that said it is ready when it was last asked; as rough as a Service."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._replicas: list[Replica] = []
        self._ready: tuple[Replica, ...] = ()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._watch, self._accept)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def sends_to(self, replica: Replica) -> bool:
        """Return whether new connections may lead to a replica."""
        return replica in self._ready

    def add(self, replica: Replica) -> None:
        self._replicas.append(replica)
        self._ready = (*self._ready, replica)

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            ready = (replica for replica in list(self._replicas) if replica.is_ready(within_seconds=_PROBE_SECONDS))
            self._ready = tuple(ready)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller, suppress(OSError):
            callee = self._connected()
            if callee is None:
                return
            with callee:
                for end in (caller, callee):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _pump(caller, callee)

    def _connected(self) -> socket.socket | None:
        """Return a connection to a replica; one that has ended since it was asked is left out, in whichever order."""
        ready = self._ready
        for replica in random.sample(ready, len(ready)):
            try:
                callee = socket.create_connection((LOOPBACK, replica.webhook_port), timeout=5)
            except OSError:
                continue
            callee.settimeout(None)
            return callee
        return None


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes on in both directions until one end closes."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select():
                data = key.fileobj.recv(65536)  # type: ignore[union-attr] # sockets are registered above
                if not data:
                    return
                key.data.sendall(data)


@contextmanager
def running_replicas(sandbox: Sandbox, folder: Path, count: int, *options: str) -> Iterator["Replicas"]:
    """Yield replicas behind a balancer and stop them at the end; their logs are shown when the test fails."""
    with ExitStack() as stack:
        replicas = Replicas(sandbox, folder, stack.enter_context(Balancer()), options, stack)
        for _ in range(count):
            replicas.start_one()
        try:
            yield replicas
        except BaseException:
            for replica in replicas.all:
                print(replica.tail(100))  # noqa: T201 - pytest shows it with the failure
            raise


class Replicas:
    """The replicas of one operator."""

    def __init__(
        self, sandbox: Sandbox, folder: Path, balancer: Balancer, options: tuple[str, ...], stack: ExitStack
    ) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._balancer = balancer
        self._options = options
        self._stack = stack
        self.all: list[Replica] = []

    def start_one(self, *options: str) -> Replica:
        replica = Replica(self._sandbox, self._folder, self._balancer, *self._options, *options)
        self._stack.enter_context(replica)
        self._balancer.add(replica)
        self.all.append(replica)
        return replica

    @property
    def leader(self) -> Replica:
        """Return the one that leads, which has to come about soon."""
        return self._soon("no replica leads", lambda: [replica for replica in self.all if replica.is_leading()])

    @property
    def follower(self) -> Replica:
        return self._soon("no replica is ready besides the leader", self._ready_followers)

    def wait_until_left_out(self, replica: Replica) -> None:
        """Wait until no new connection leads to a replica that is not ready any more."""
        eventually("it is left out", lambda: not self._balancer.sends_to(replica))

    def _ready_followers(self) -> list[Replica]:
        leader = self.leader
        return [replica for replica in self.all if replica is not leader and replica.is_ready()]

    @staticmethod
    def _soon(trouble: str, find: Callable[[], list[Replica]]) -> Replica:
        """Return the first that is found, which has to come about in time."""
        deadline = time.monotonic() + _READY_SECONDS
        while not (found := find()):
            assert time.monotonic() < deadline, trouble
            time.sleep(0.02)
        return found[0]
