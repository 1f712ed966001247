"""Measures what the schema of Reservations costs the API server, beside other schemas in one run; prints ratios.

    python tests/benchmarks/reservation_schema.py [--rounds 10] [--calls 60] [--against REVISION]

Every schema is served under a group of its own, so that one API server answers them in turns:

    shipped     crds/reservations.yaml as it stands
    opaque      the same, and the API server looks at nothing in a template and checks no rule
    before      the file of a git revision, where --against names one

In every turn objects are created, and the status of each is patched twice, as the operator writes it. What counts is
the processor time of the API server and the median time of a call, both through those of the opaque schema.
"""

# ruff: noqa: ANN401, T201 - schemas hold anything; it prints

import argparse
import os
import statistics
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import Resource
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace
from control_planes import control_plane

ROOT: Final = Path(__file__).resolve().parents[2]
CRD_PATH: Final = "crds/reservations.yaml"
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
NAMESPACE: Final = "measured"
TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


def opaque(crd: dict[str, Any]) -> dict[str, Any]:
    """Return a CRD that looks at nothing in a template and checks no rule."""
    bare = without_rules(deepcopy(crd))
    spec = bare["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    task = spec["properties"]["tasks"]["items"]["properties"]
    task["template"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return bare


def without_rules(node: Any) -> Any:
    """Return a schema without its rules."""
    if isinstance(node, dict):
        return {key: without_rules(inner) for key, inner in node.items() if key != "x-kubernetes-validations"}
    return [without_rules(inner) for inner in node] if isinstance(node, list) else node


@dataclass
class Measured:
    """One schema and what its calls took."""

    name: str
    crd: dict[str, Any]
    wall_millis: dict[str, list[float]] = field(default_factory=lambda: {"create": [], "status": []})
    cpu_millis: dict[str, list[float]] = field(default_factory=lambda: {"create": [], "status": []})

    @property
    def resource(self) -> Resource:
        return Resource(f"{self.name}.schemas.example", "v1alpha1", "reservations", "Reservation")

    def definition(self) -> dict[str, Any]:
        """Return the CRD under the group of the schema."""
        crd = deepcopy(self.crd)
        crd["metadata"]["name"] = f"reservations.{self.resource.group}"
        crd["spec"]["group"] = self.resource.group
        crd["spec"]["names"]["shortNames"] = []
        return crd


def body(resource: Resource, name: str) -> dict[str, Any]:
    """Return a Reservation of a usual template: what the descheduler makes of a pod of a web server."""
    container = {
        "name": "main",
        "image": "registry.example/web:1.2.3",
        "command": ["/bin/web", "--port=8080"],
        "env": [{"name": f"SETTING_{n}", "value": str(n)} for n in range(10)],
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 5},
    }
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b", "c"]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    pod = {
        "containers": [container, {**container, "name": "side"}],
        "affinity": {"nodeAffinity": terms},
        "nodeSelector": {"pool": "batch"},
        "tolerations": [{"key": "pool", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}],
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    return {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": {
            "ttl": "10m",
            "owners": [{"object": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4f", "uid": "6c5a"}}],
            "tasks": [{"name": "main", "replicas": 3, "reservationNodeNames": ["node-1"], "template": template}],
        },
    }


def status(state: str) -> dict[str, Any]:
    """Return a status as the operator writes it."""
    moment = "2030-01-01T12:00:00Z"
    slots = [
        {"task": "main", "index": n, "state": state, "node": "node-1", "placeholder": f"place-main-{n}"}
        for n in range(3)
    ]
    told = {"status": "True", "reason": "SlotsHeld", "message": "3 of 3 slots are held", "lastTransitionTime": moment}
    types = ("Available", "HandoverReady", "Succeeded", "Failed", "Bounded")
    return {
        "state": {"phase": "Available", "reason": "SlotsHeld", "message": state, "lastTransitionTime": moment},
        "minAvailable": 3,
        "desired": 3,
        "available": 3,
        "pending": 0,
        "succeeded": 0,
        "failed": 0,
        "taskStatusCount": {"main": {"phase": {state: 3}}},
        "conditions": [{"type": one, "observedGeneration": 1, **told} for one in types],
        "allocatable": {"cpu": "3", "memory": "3Gi"},
        "slots": slots,
        "observedGeneration": 1,
    }


def server_millis(sandbox: Sandbox) -> float:
    """Return the processor time of the API server."""
    (pid,) = [pid for component, pid in sandbox.live_components().items() if component == "kube-apiserver"]
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / TICKS_A_SECOND


def take_turn(sandbox: Sandbox, client: KubeClient, schema: Measured, turn: int, calls: int) -> None:
    """Create objects and patch their statuses; the times are added to the schema's."""
    names = [f"turn-{turn}-{number}" for number in range(calls)]
    resource = schema.resource
    bodies = {name: body(resource, name) for name in names}
    spent = server_millis(sandbox)
    for name in names:
        began = time.perf_counter()
        client.create(resource, bodies[name], namespace=NAMESPACE)
        schema.wall_millis["create"].append((time.perf_counter() - began) * 1000)
    created = server_millis(sandbox)
    for state in ("Pending", "Held"):
        for name in names:
            began = time.perf_counter()
            client.merge_patch(resource, name, {"status": status(state)}, namespace=NAMESPACE, subresource="status")
            schema.wall_millis["status"].append((time.perf_counter() - began) * 1000)
    schema.cpu_millis["create"].append((created - spent) / calls)
    schema.cpu_millis["status"].append((server_millis(sandbox) - created) / (2 * calls))


def serve(client: KubeClient, schema: Measured) -> None:
    """Register a schema and wait until its objects are served."""
    client.create(CRDS, schema.definition())
    for _ in range(300):
        try:
            client.list(schema.resource, namespace=NAMESPACE)
        except NotFoundError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(schema.name)


def report(schemas: list[Measured]) -> None:
    """Print each schema's figures, and through those of the opaque one."""
    (base,) = [schema for schema in schemas if schema.name == "opaque"]
    print(f"{'':10}{'create: cpu ms':>16}{'ratio':>7}{'p50 ms':>9}{'ratio':>7}", end="")
    print(f"{'status: cpu ms':>18}{'ratio':>7}{'p50 ms':>9}{'ratio':>7}")
    for schema in schemas:
        print(f"{schema.name:10}", end="")
        for verb, width in (("create", 16), ("status", 18)):
            cpu, plain_cpu = (statistics.fmean(one.cpu_millis[verb]) for one in (schema, base))
            wall, plain_wall = (statistics.median(one.wall_millis[verb]) for one in (schema, base))
            print(f"{cpu:{width}.2f}{cpu / plain_cpu:7.2f}{wall:9.2f}{wall / plain_wall:7.2f}", end="")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--against", help="a git revision whose schema is measured as well")
    parser.add_argument("--file", type=Path, action="append", default=[], help="another CRD to measure, under its name")
    options = parser.parse_args()
    shipped = yaml.safe_load((ROOT / CRD_PATH).read_text(encoding="utf-8"))
    schemas = [Measured("shipped", shipped), Measured("opaque", opaque(shipped))]
    if options.against:
        command = ["git", "-C", str(ROOT), "show", f"{options.against}:{CRD_PATH}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        schemas.append(Measured("before", yaml.safe_load(text)))
    schemas += [Measured(one.stem, yaml.safe_load(one.read_text(encoding="utf-8"))) for one in options.file]
    with control_plane() as sandbox, sandbox.connect() as client:
        make_namespace(client, NAMESPACE)
        for schema in schemas:
            serve(client, schema)
            take_turn(sandbox, client, Measured(schema.name, schema.crd), -1, options.calls)  # warms up
        for turn in range(options.rounds):
            for schema in schemas:
                take_turn(sandbox, client, schema, turn, options.calls)
    report(schemas)


if __name__ == "__main__":
    main()
