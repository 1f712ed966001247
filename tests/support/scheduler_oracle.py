"""A real kube-scheduler that is only asked: it says on which nodes a pod fits and never places one.

The scheduler runs with its own filters and with an extender, which it calls with the nodes that passed them all. The
extender notes the nodes and lets none pass, so no pod is ever assumed, bound or nominated, and one question tells about
all nodes at once.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import yaml

from berth_core import Pod
from berth_kube.client import KubeClient
from berth_kube.resources import PODS
from berth_sandbox.components import Component
from berth_sandbox.configuration import SECOND_SCHEDULER_NAME
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.sandbox import Sandbox

ORACLE_NAME = SECOND_SCHEDULER_NAME
PATIENCE_SECONDS = 180.0
PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Answer:
    """The nodes that take a pod, and the scheduler's own sentence about the others."""

    nodes: frozenset[str]
    message: str


class SchedulerOracle:
    """Turns the sandbox's second scheduler into one that only answers, as long as the block lasts."""

    def __init__(self, sandbox: Sandbox, client: KubeClient) -> None:
        self._sandbox = sandbox
        self._client = client
        self._passed: dict[str, frozenset[str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        path = SandboxFolder(self._sandbox.folder).scheduler_config(Component.SECOND_SCHEDULER)
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
        path.write_text(yaml.safe_dump(self._config(written)), encoding="utf-8")
        self.start_anew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def start_anew(self) -> None:
        """Have the scheduler know all that is there by now: it answers once it has listed every kind of object."""
        self._sandbox.restart(Component.SECOND_SCHEDULER)

    def nodes_for(self, body: Mapping[str, Any]) -> "Answer":
        """Return the nodes on which the scheduler would put a pod as the cluster is now; the pod is gone afterwards."""
        meta = body["metadata"]
        asked = {**body, "spec": {**body["spec"], "schedulerName": ORACLE_NAME}}
        made = self._client.create(PODS, asked, namespace=meta["namespace"], type=Pod)
        try:
            return self._wait(made)
        finally:
            self._client.delete(PODS, made.metadata.name, namespace=made.metadata.namespace, grace_seconds=0)

    def _wait(self, pod: Pod) -> "Answer":
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
            now = self._client.get(PODS, pod.metadata.name, namespace=pod.metadata.namespace, type=Pod)
            said = [one for one in now.status.conditions if one.type == "PodScheduled" and one.status == "False"]
            if said:
                assert said[0].reason == "Unschedulable", said[0]
                return Answer(self._passed.get(pod.metadata.uid, frozenset()), said[0].message)
        raise AssertionError(f"the scheduler said nothing about {pod.key}")

    def _config(self, written: dict[str, Any]) -> dict[str, Any]:
        (profile,) = written["profiles"]
        quiet = {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}
        extender = {
            "urlPrefix": f"http://127.0.0.1:{self._server.server_port}",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "httpTimeout": "30s",
        }
        return written | {"profiles": [profile | {"plugins": quiet}], "extenders": [extender]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        passed = self._passed

        class Handler(BaseHTTPRequestHandler):
            """Notes which nodes a pod passed, and lets none through."""

            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                names = asked["NodeNames"] or []
                passed[asked["Pod"]["metadata"]["uid"]] = frozenset(names)
                answer = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only asked")}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
