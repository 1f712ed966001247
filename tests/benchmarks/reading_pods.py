"""The measurement of reading many pods from an API server, beside the official client's models.

Run it as `python tests/benchmarks/reading_pods.py [--pods 20000]`. A server in a process of its own sends generated
pods in pages of 500, as the API server writes them (some 4.5 KB each). Each reader runs in a fresh process; its seconds
(without imports) and its peak memory (with everything) are printed side by side. Berth's reader goes on to a snapshot
with every pod's effective requests; the official client's stops at the models.
"""
# ruff: noqa: T201, PLC0415 - it prints, and each reader imports only what it measures

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one reader took."""

    reader: str
    pods: int
    seconds: float
    peak_megabytes: float


# --- the pods -------------------------------------------------------------------------------------------------------


def build_pod(index: int) -> dict[str, Any]:
    """Return one pod of a Deployment, as the API server lists it."""
    app, node = f"service-{index % 700:03d}", f"node-{index % 900:04d}.eu-central-1.compute.internal"
    replica_set = f"{app}-{index % 700 * 7919:09x}"
    name = f"{replica_set}-{index:05x}"
    return {
        "metadata": {
            "name": name,
            "generateName": f"{replica_set}-",
            "namespace": f"team-{index % 40:02d}",
            "uid": f"{index:08x}-7d0c-4c55-9a52-5b1e{index:08x}",
            "resourceVersion": str(10_000_000 + index),
            "generation": 1,
            "creationTimestamp": "2026-11-19T08:12:31Z",
            "labels": {
                "app.kubernetes.io/name": app,
                "app.kubernetes.io/instance": f"{app}-prod",
                "app.kubernetes.io/version": "4.18.2",
                "pod-template-hash": replica_set[-9:],
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9102",
                "checksum/config": f"{index % 700:064x}",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": replica_set,
                    "uid": f"{index % 700:08x}-11aa-4c55-9a52-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _managed_fields(),
        },
        "spec": _spec(app, node, index),
        "status": _status(node, index),
    }


def _managed_fields() -> list[dict[str, Any]]:
    """Return who set which field, shortened to what makes the usual size."""
    labels: dict[str, Any] = {
        f"f:{key}": {} for key in ("app.kubernetes.io/name", "app.kubernetes.io/instance", "pod-template-hash")
    }
    container: dict[str, Any] = {
        f"f:{key}": {} for key in ("image", "imagePullPolicy", "name", "resources", "ports", "env")
    }
    return [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-11-19T08:12:31Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:generateName": {}, "f:labels": {".": {}} | labels, "f:ownerReferences": {".": {}}},
                "f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}} | container}, "f:restartPolicy": {}},
            },
        },
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-11-19T08:12:44Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:status": {f"f:{key}": {} for key in ("conditions", "hostIP", "phase", "podIP", "startTime")}
            },
            "subresource": "status",
        },
    ]


def _spec(app: str, node: str, index: int) -> dict[str, Any]:
    """Return a pod's spec after admission and scheduling."""
    not_ready, unreachable = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
    return {
        "containers": [_container(app, index)],
        "nodeName": node,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": app,
        "serviceAccount": app,
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in (not_ready, unreachable)
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
            }
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}},
            {
                "name": f"kube-api-access-{index:05x}",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    ],
                },
            },
        ],
    }


def _container(app: str, index: int) -> dict[str, Any]:
    """Return the pod's only container."""
    requests = {"cpu": f"{100 + index % 9 * 150}m", "memory": f"{128 + index % 13 * 96}Mi"}
    return {
        "name": "main",
        "image": f"registry.example.com/platform/{app}:4.18.2",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(2)],
        "resources": {"requests": requests, "limits": {"memory": requests["memory"]}},
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/config", "readOnly": True},
            {"name": f"kube-api-access-{index:05x}", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
    }


def _status(node: str, index: int) -> dict[str, Any]:
    """Return the status of a pod that runs."""
    address = f"10.{index // 65536}.{index // 256 % 256}.{index % 256}"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-19T08:12:31Z",
        "hostIP": f"172.16.{index % 900 // 250}.{index % 250}",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-11-19T08:12:44Z"}
            for kind in conditions
        ],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "restartCount": index % 3,
                "image": f"registry.example.com/platform/{node}:4.18.2",
                "imageID": f"registry.example.com/platform/service@sha256:{index % 700:064x}",
                "containerID": f"containerd://{index:064x}",
                "state": {"running": {"startedAt": "2026-11-19T08:12:43Z"}},
                "lastState": {},
            }
        ],
    }


# --- the server -----------------------------------------------------------------------------------------------------


def serve(pods: int) -> None:
    """Generate the pods, say the port and their mean size on standard output, and serve until killed."""
    encoded = [json.dumps(build_pod(index), separators=(",", ":")).encode() for index in range(pods)]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            body = _page(encoded, parse_qs(urlsplit(self.path).query))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], sum(map(len, encoded)) // pods, flush=True)
    server.serve_forever()


def _page(encoded: Sequence[bytes], query: dict[str, list[str]]) -> bytes:
    """Return one page of the list, as the query asks."""
    start = int(query.get("continue", ["0"])[0])
    end = start + int(query.get("limit", [str(len(encoded))])[0])
    metadata: dict[str, Any] = {"resourceVersion": "20000000"}
    if end < len(encoded):
        metadata |= {"continue": str(end), "remainingItemCount": len(encoded) - end}
    items = b",".join(encoded[start:end])
    return b'{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[%s]}' % (json.dumps(metadata).encode(), items)


@contextmanager
def running_server(pods: int) -> Iterator[tuple[str, int]]:
    """Yield the address of a server in a process of its own and the mean size of a pod in bytes."""
    command = [sys.executable, __file__, "--serve", "--pods", str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port, size = process.stdout.readline().split()
            yield f"http://127.0.0.1:{port}", int(size)
        finally:
            process.kill()


# --- the readers ----------------------------------------------------------------------------------------------------


def read_with_berth(kubeconfig: str) -> Callable[[], int]:
    """Return a reader into a snapshot of Berth's structs."""
    from berth_core.objects import Pod
    from berth_core.snapshot import Snapshot
    from berth_kube import connect
    from berth_kube.resources import PODS

    client = connect(kubeconfig=kubeconfig)

    def read() -> int:
        snapshot = Snapshot(pods=client.list(PODS, type=Pod, page_size=PAGE_SIZE).items)
        return len(snapshot.requests)

    return read


def read_with_models(kubeconfig: str) -> Callable[[], int]:
    """Return a reader into the official client's models."""
    from kubernetes import client, config

    config.load_kube_config(config_file=kubeconfig)
    api = client.CoreV1Api()
    kept: list[object] = []

    def read() -> int:
        token = None
        while True:
            answer = api.list_pod_for_all_namespaces(limit=PAGE_SIZE, _continue=token)
            kept.extend(answer.items)
            token = answer.metadata._continue
            if not token:
                return len(kept)

    return read


READERS = {"berth": read_with_berth, "models": read_with_models}
NAMES = {"berth": "Berth (snapshot)", "models": "official client (models)"}


def peak_megabytes() -> float:
    """Return the largest resident size of this process; `ru_maxrss` would count its parent's before the exec."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def run_reader(reader: str, kubeconfig: str) -> None:
    """Read once and print count, seconds and peak megabytes."""
    read = READERS[reader](kubeconfig)
    started = time.perf_counter()
    count = read()
    print(count, time.perf_counter() - started, peak_megabytes())


def measure(reader: str, kubeconfig: str) -> Measurement:
    """Return what one reader takes in a fresh process."""
    command = [sys.executable, __file__, "--reader", reader, "--kubeconfig", kubeconfig]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    count, seconds, megabytes = output.split()
    return Measurement(reader, int(count), float(seconds), float(megabytes))


# --- the report -----------------------------------------------------------------------------------------------------


def report(measurements: Sequence[Measurement], size: int) -> str:
    """Return the table, with ratios to the first reader."""
    first = measurements[0]
    head = f"{'reader':28}{'pods':>8}{'seconds':>10}{'ratio':>8}{'peak MB':>10}{'ratio':>8}"
    rows = [
        f"{NAMES[m.reader]:28}{m.pods:>8}{m.seconds:>10.2f}{m.seconds / first.seconds:>8.1f}"
        f"{m.peak_megabytes:>10.0f}{m.peak_megabytes / first.peak_megabytes:>8.1f}"
        for m in measurements
    ]
    return "\n".join([f"{first.pods} pods of {size} bytes, in pages of {PAGE_SIZE}", "", head, *rows])


def main() -> None:
    """Measure every reader against the same server."""
    parser = argparse.ArgumentParser(description="Measure reading many pods.")
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.pods)
    elif options.reader:
        run_reader(options.reader, options.kubeconfig)
    else:
        with running_server(options.pods) as (url, size), tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "kubeconfig.json"
            kubeconfig.write_text(json.dumps(kubeconfig_for(url)))
            print(report([measure(reader, str(kubeconfig)) for reader in READERS], size))


def kubeconfig_for(url: str) -> dict[str, Any]:
    """Return a kubeconfig that leads to a server."""
    return {
        "current-context": "benchmark",
        "clusters": [{"name": "benchmark", "cluster": {"server": url}}],
        "users": [{"name": "benchmark", "user": {"token": "none"}}],
        "contexts": [{"name": "benchmark", "context": {"cluster": "benchmark", "user": "benchmark"}}],
    }


if __name__ == "__main__":
    main()
