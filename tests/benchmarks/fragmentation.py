"""The measurement of what it costs to say how fragmented a cluster is, with its reading over HTTP and without.

Run it as `python tests/benchmarks/fragmentation.py`; `--nodes 5000` for another size. The server hands out pages that
were encoded beforehand, so that the reading is the client's; pods are of the size that real ones have in JSON.
"""
# ruff: noqa: T201 - it prints

import argparse
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.instances import Recipe, generate
from berth_core.snapshot import Snapshot
from berth_descheduler.metrics import CapacityMetrics
from berth_descheduler.planner.stranded_capacity import report_capacity
from berth_descheduler.report.capacity import describe_capacity
from berth_descheduler.report.top import view_cluster
from berth_descheduler.snapshots import read_capacity
from berth_kube.client import connect
from scripted_server import write_kubeconfig

PATHS = {"/api/v1/nodes": "Node", "/api/v1/pods": "Pod"}
PAGE = 500
PADDING = {"berth.example.com/padding": "x" * 3000}
"""Brings a pod to the four to five kilobytes that they have in a cluster."""

BERTH = "from berth_descheduler.cli.main import main; main()"


def encode_pages(snapshot: Snapshot, kind: str) -> list[bytes]:
    """Return the answers to a list in pages."""
    items: list[dict[str, Any]] = [one for one in json.loads(snapshot.to_json())["items"] if one["kind"] == kind]
    for item in items:
        item["metadata"].setdefault("annotations", {}).update(PADDING)
    chunks = [items[first : first + PAGE] for first in range(0, len(items), PAGE)] or [[]]
    continued = [{"continue": str(number + 1)} for number in range(len(chunks) - 1)] + [{}]
    return [
        json.dumps({"metadata": {"resourceVersion": "1", **more}, "items": chunk}).encode()
        for more, chunk in zip(continued, chunks, strict=True)
    ]


@contextmanager
def serving(snapshot: Snapshot) -> Iterator[str]:
    """Serve a snapshot's nodes and pods, and yield the address."""
    pages = {path: encode_pages(snapshot, kind) for path, kind in PATHS.items()}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            found = pages.get(address.path)
            number = int(parse_qs(address.query).get("continue", ["0"])[0])
            body = found[number] if found else b'{"kind":"Status","code":404,"reason":"NotFound","message":"none"}'
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def measure(what: str, act: Callable[[], object], times: int = 3) -> None:
    """Print the least processor and clock time of some calls."""
    clocks, processor = [], []
    for _ in range(times):
        begun, used = time.monotonic(), time.process_time()
        act()
        clocks.append(time.monotonic() - begun)
        processor.append(time.process_time() - used)
    print(f"{what:58} {min(clocks):6.2f} s by the clock {min(processor):6.2f} s of the processor", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--requested", type=float, default=0.4, help="share of the cores; 0.4 gives about ten pods a node"
    )
    options = parser.parse_args(arguments)
    snapshot = generate(Recipe(nodes=options.nodes, requested=options.requested))
    print(f"{len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods")
    registry = CollectorRegistry()
    metrics = CapacityMetrics(registry)
    with serving(snapshot) as address, tempfile.TemporaryDirectory() as folder:
        config = write_kubeconfig(Path(folder), address)
        with connect(kubeconfig=config) as client:
            measure("reading nodes, pods and reservations", lambda: read_capacity(client))
            measure("counting", lambda: report_capacity(snapshot))
            measure("both, as REST answers", lambda: describe_capacity(report_capacity(read_capacity(client))))
            report = report_capacity(snapshot, sizes_of_nodes=True)

            def show_and_scrape() -> None:
                metrics.show(report, 0.0)
                generate_latest(registry)

            measure("showing it in the metrics, and one scrape", show_and_scrape)
            measure("what berth top shows", lambda: view_cluster(snapshot, ()))
        command = [sys.executable, "-c", BERTH, "fragmentation", "--kubeconfig", config]
        measure(
            "berth fragmentation, the whole process (with the server's part)",
            lambda: subprocess.run(command, check=True, capture_output=True),
        )


if __name__ == "__main__":
    main()
