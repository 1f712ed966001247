"""Has programs that know nothing of Berth evict 100 pods that ask for a replacement first, and watches for gaps.

    python tests/benchmarks/evictions_by_others.py [--apps 20] [--replicas 5] [--by kubectl descheduler nobody]

Each Deployment has a Service and a budget that lets no pod go. `kubectl` drains their node; `descheduler` is the
Kubernetes descheduler, built from the Go module proxy, with one cycle of its plugin PodLifeTime over all of them; with
`nobody` the operator is killed, and each pod is evicted once without a budget: how long that takes at most.
"""

# ruff: noqa: T201 - it prints

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import EVICTIONS_LABEL, EVICTIONS_SURGE, RELEASED_HASH, TEMPLATE_HASH_LABEL, Pod
from berth_kube import (
    DEPLOYMENTS,
    NAMESPACES,
    PDBS,
    PODS,
    SERVICES,
    EvictionBlockedError,
    EvictionInterceptedError,
    KubeClient,
)
from berth_sandbox.bootstrap import NodeShape
from berth_sandbox.builds import find_kubectl
from berth_sandbox.folders import cache_folder
from berth_sandbox.go_toolchain import find_go, go_environment
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace
from eviction_calls import answered_evictions
from ready_endpoints import ready_endpoints, watched_endpoints
from service_processes import OperatorProcess
from waiting import eventually

NAMESPACE: Final = "evicted"
DESCHEDULER: Final = "sigs.k8s.io/descheduler"
VERSION: Final = "v0.35.1"
POLICY: Final = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "all",
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": {}},
                {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1, "namespaces": {"include": [NAMESPACE]}}},
            ],
            "plugins": {"deschedule": {"enabled": ["PodLifeTime"]}},
        }
    ],
}


def find_descheduler() -> Path:
    """Return the Kubernetes descheduler, built once into the user's cache."""
    built = cache_folder() / f"descheduler-{VERSION}" / "descheduler"
    if not built.exists():
        go = str(find_go((1, 25)).command)
        asked = [go, "mod", "download", "-json", f"{DESCHEDULER}@{VERSION}"]
        said = subprocess.run(asked, capture_output=True, check=True, env=go_environment(), cwd="/")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "source")
            shutil.copytree(json.loads(said.stdout)["Dir"], source, copy_function=shutil.copyfile)
            for one, _, _ in os.walk(source):
                Path(one).chmod(0o755)
            command = [go, "build", "-mod=mod", "-o", str(Path(folder, "built")), "./cmd/descheduler"]
            subprocess.run(command, cwd=source, check=True, env=go_environment())
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(folder, "built"), built)
    return built


def set_up(sandbox: Sandbox, client: KubeClient, apps: dict[str, int]) -> tuple[str, str]:
    """Make Deployments with Services and budgets, all on the first of two nodes; return the nodes."""
    first, second = sandbox.add_nodes(2, NodeShape(cpu="64", pods=250), prefix="evicted-")
    make_namespace(client, NAMESPACE)
    client.merge_patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {EVICTIONS_LABEL: EVICTIONS_SURGE}}})
    kubectl(sandbox, "cordon", second)
    for name, replicas in apps.items():
        chosen, named = {"app": name}, {"metadata": {"name": name}}
        client.create(DEPLOYMENTS, build_deployment(name, replicas=replicas, cpu="10m"), namespace=NAMESPACE)
        service = {"apiVersion": "v1", "kind": "Service", **named}
        client.create(SERVICES, {**service, "spec": {"selector": chosen, "ports": [{"port": 80}]}}, namespace=NAMESPACE)
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **named}
        spec = {"minAvailable": "100%", "selector": {"matchLabels": chosen}}
        client.create(PDBS, {**budget, "spec": spec}, namespace=NAMESPACE)
    eventually("all endpoints are ready", lambda: ready_endpoints(client, NAMESPACE) == apps, seconds=300)
    eventually("the API server asks the operator", lambda: is_answered(client))
    out = f"{TEMPLATE_HASH_LABEL}={RELEASED_HASH}"
    released = lambda: client.list(PODS, namespace=NAMESPACE, label_selector=out).items  # noqa: E731
    eventually("the pod that was asked about is moved", lambda: not released())
    kubectl(sandbox, "uncordon", second)
    return first, second


def is_answered(client: KubeClient) -> bool:
    """Return whether the operator answers an eviction, which the budgets refuse until then."""
    pod = client.list(PODS, namespace=NAMESPACE, type=Pod).items[0].metadata
    try:
        client.evict(NAMESPACE, pod.name, uid=pod.uid)
    except EvictionInterceptedError:
        return True
    except EvictionBlockedError:
        return False
    return False


def kubectl(sandbox: Sandbox, *arguments: str) -> str:
    return run(str(find_kubectl(print)), "--kubeconfig", str(sandbox.kubeconfig), *arguments)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def pods(client: KubeClient) -> dict[str, Pod]:
    return {one.metadata.uid: one for one in client.list(PODS, namespace=NAMESPACE, type=Pod).items}


def deschedule(sandbox: Sandbox, folder: Path) -> str:
    policy = folder / "policy.json"
    policy.write_text(json.dumps(POLICY))
    options = (f"--kubeconfig={sandbox.kubeconfig}", f"--policy-config-file={policy}", "--secure-port=0", "-v=1")
    return run(str(find_descheduler()), *options)


def measure(sandbox: Sandbox, client: KubeClient, by: str, apps: dict[str, int], node: str, folder: Path) -> None:
    """Have one program evict all pods, and print what became of them."""
    before, begun = pods(client), time.monotonic()
    with watched_endpoints(client, NAMESPACE) as endpoints:
        said = kubectl(sandbox, "drain", node, "--timeout=600s") if by == "kubectl" else deschedule(sandbox, folder)
        took = time.monotonic() - begun
        steady = lambda: ready_endpoints(client, NAMESPACE) == apps  # noqa: E731
        eventually("as many endpoints as before", steady, seconds=180)
        eventually("what was evicted is gone", lambda: not any(one.is_terminating for one in pods(client).values()))
    gone = len(before.keys() - pods(client).keys())
    short = {name: fewest for name, fewest in endpoints.fewest.items() if fewest < apps.get(name, 0)}
    print(f"{by}: {gone} of {len(before)} pods moved in {took:.0f} s, {len(short)} of {len(apps)} Services with a gap")
    (folder / f"{by}.log").write_text(said)


def measure_without_berth(client: KubeClient, operator: OperatorProcess, apps: dict[str, int]) -> None:
    """Evict each pod once while no operator runs, and print how long it took."""
    operator.kill()
    for name in apps:
        client.delete(PDBS, name, namespace=NAMESPACE)
    seconds = []
    for uid, pod in pods(client).items():
        begun = time.monotonic()
        client.evict(NAMESPACE, pod.metadata.name, uid=uid)
        seconds.append(time.monotonic() - begun)
    print(f"nobody: {len(seconds)} evictions passed, each within {max(seconds):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--apps", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--by", nargs="+", default=["kubectl", "descheduler", "nobody"])
    given = parser.parse_args()
    apps = {f"app-{number:02d}": given.replicas for number in range(given.apps)}
    folder = Path(tempfile.mkdtemp(prefix="berth-evictions-"))
    with (
        Sandbox.start(SandboxSettings(), progress=print) as sandbox,
        sandbox.connect() as client,
        answered_evictions(client),
        OperatorProcess(sandbox, folder, "--evictions") as operator,
    ):
        node, _ = set_up(sandbox, client, apps)
        for by in given.by:
            if by == "nobody":
                measure_without_berth(client, operator, apps)
            else:
                measure(sandbox, client, by, apps, node, folder)
                kubectl(sandbox, "uncordon", node)


if __name__ == "__main__":
    main()
