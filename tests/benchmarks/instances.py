"""The instances that the planner is measured on: generated clusters, and public data.

A generated cluster is a function of its recipe and seed. Deployments of a few to a few hundred replicas ask for the
amounts that people write (100m to 8 cores, 1 to 8 GiB per core); their pods come one by one and each goes to the least
allocated of some random nodes, as kube-scheduler samples nodes in a large cluster; then pods leave. Two recipes:
`spread` (pods of all Deployments leave one by one: a full cluster with small holes everywhere) and `scaled_down` (whole
Deployments shrink to a fifth: half-empty nodes).
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from berth_core import Container, Node, OwnerReference, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_core.workloads import Workload, WorkloadSpec
from builders import meta, node

TESTS: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (TESTS / "data", TESTS.parents[1] / "shared" / "data")
"""Where public data is looked for: what may be passed on travels with the project, the rest lies beside it."""

MIB_PER_GIB: Final = 1024
_CPU_MILLIS: Final = ((100, 22), (250, 30), (500, 26), (1000, 13), (2000, 6), (4000, 2), (8000, 1))
"""CPU requests and how many of a hundred Deployments have them."""

_GIB_PER_CORE: Final = ((1, 15), (2, 35), (4, 35), (8, 15))
_LARGEST_POD_MIB: Final = 48 * MIB_PER_GIB
_SAMPLED_NODES: Final = 6
_FILL_ABOVE: Final = 0.08
"""How much more is requested before the pods of a `spread` cluster leave."""

_IN_VAIN: Final = 200
"""After so many Deployments in a row that found no room at all (the memory is full), a cluster counts as full."""

_STAYING: Final = 0.2
"""The share of a Deployment's pods that stay when it shrinks."""


class MissingDataError(Exception):
    """A file of the public data is not there; the text says which."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a generated cluster is like.

    `requested` is the share of the cores that pods ask for, less a random part of one node: otherwise the bound by
    volume would leave no room at all, as no cluster does.
    """

    nodes: int
    requested: float
    scaled_down: bool = False
    seed: int = 0
    node_millis: int = 16_000
    node_mib: int = 64 * MIB_PER_GIB
    pairs: int = 0
    """From so many pairs of requests, none of them round, Deployments draw theirs; 0: from the usual round ones."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Pods on nodes in numbers: per pod its Deployment and node, per Deployment its amounts."""

    recipe: Recipe
    millis: tuple[int, ...]
    mib: tuple[int, ...]
    deployment_of: tuple[int, ...]
    node_of: tuple[int, ...]

    @property
    def requested(self) -> float:
        """Return the share of the cores that is requested."""
        asked = sum(self.millis[deployment] for deployment in self.deployment_of)
        return asked / (self.recipe.nodes * self.recipe.node_millis)


def lay_out(recipe: Recipe) -> Layout:
    """Return a generated cluster in numbers."""
    return _Builder(recipe).build()


def generate(recipe: Recipe) -> Snapshot:
    """Return a generated cluster as a snapshot."""
    layout = lay_out(recipe)
    nodes = tuple(_node(recipe, index) for index in range(recipe.nodes))
    replicas = Counter(layout.deployment_of)
    workloads = tuple(_workload(index, replicas[index]) for index in range(len(layout.millis)))
    specs = [_Template(layout, index) for index in range(len(layout.millis))]
    pods = (
        specs[deployment].pod(number, f"n{place:05d}")
        for number, (deployment, place) in enumerate(zip(layout.deployment_of, layout.node_of, strict=True))
    )
    return Snapshot(nodes=nodes, pods=tuple(pods), workloads=workloads)


class _Builder:
    """Fills a cluster pod by pod and lets pods leave again."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._chance = Random(recipe.seed)  # noqa: S311 - an instance is no secret
        self._free = [[recipe.node_millis, recipe.node_mib, 110] for _ in range(recipe.nodes)]
        self._millis: list[int] = []
        self._mib: list[int] = []
        self._placed: list[tuple[int, int]] = []
        self._asked = 0
        self._pairs = [self._pair() for _ in range(recipe.pairs)]

    def _pair(self) -> tuple[int, int]:
        chance = self._chance
        millis = min(12_000, max(20, int(chance.lognormvariate(6.6, 0.9))))
        return millis, min(_LARGEST_POD_MIB, max(32, int(millis * chance.lognormvariate(1.1, 0.6))))

    def build(self) -> Layout:
        """Return the layout."""
        recipe = self._recipe
        total = recipe.nodes * recipe.node_millis
        full = 0.95 if recipe.scaled_down else min(0.97, recipe.requested + _FILL_ABOVE)
        in_vain = 0
        while self._asked < full * total and in_vain < _IN_VAIN:
            before = self._asked
            self._deploy()
            in_vain = in_vain + 1 if self._asked == before else 0
        self._leave(int(recipe.requested * total - self._chance.random() * recipe.node_millis))
        self._placed.sort()
        deployments, places = zip(*self._placed, strict=True)
        return Layout(recipe, tuple(self._millis), tuple(self._mib), deployments, places)

    def _deploy(self) -> None:
        """Add a Deployment and place as many of its pods as find a node."""
        chance = self._chance
        if self._pairs:
            millis, mib = chance.choice(self._pairs)
        else:
            millis = _draw(chance, _CPU_MILLIS)
            mib = min(_LARGEST_POD_MIB, millis * _draw(chance, _GIB_PER_CORE) * MIB_PER_GIB // 1000)
        scale = 1 + self._recipe.nodes // 5000
        replicas = min(scale * max(2, 80_000 // millis), 1 + int(chance.expovariate(1 / 10) * scale))
        self._millis.append(millis)
        self._mib.append(mib)
        for _ in range(replicas):
            self._place(len(self._millis) - 1)

    def _place(self, deployment: int) -> None:
        """Put a pod on the least allocated of some random nodes; if none of them has room, it stays away."""
        millis, mib = self._millis[deployment], self._mib[deployment]
        best, most = -1, -1
        for attempt in range(_SAMPLED_NODES * 6):
            place = self._chance.randrange(self._recipe.nodes)
            free = self._free[place]
            if free[0] >= millis and free[1] >= mib and free[2] and free[0] > most:
                best, most = place, free[0]
            if best >= 0 and attempt >= _SAMPLED_NODES:
                break
        if best >= 0:
            self._hold(deployment, best, 1)
            self._placed.append((deployment, best))

    def _leave(self, asked: int) -> None:
        """Let pods leave until no more than `asked` is requested."""
        chance = self._chance
        order = list(range(len(self._placed)))
        chance.shuffle(order)
        if self._recipe.scaled_down:
            shrinking = {one: chance.random() for one in range(len(self._millis))}
            order = [one for one in order if chance.random() >= _STAYING]
            order.sort(key=lambda one: shrinking[self._placed[one][0]])
        gone = set()
        for one in order:
            if self._asked <= asked:
                break
            self._hold(*self._placed[one], -1)
            gone.add(one)
        self._placed = [placed for index, placed in enumerate(self._placed) if index not in gone]

    def _hold(self, deployment: int, place: int, times: int) -> None:
        free = self._free[place]
        free[0] -= self._millis[deployment] * times
        free[1] -= self._mib[deployment] * times
        free[2] -= times
        self._asked += self._millis[deployment] * times


def _draw(chance: Random, weighted: Sequence[tuple[int, int]]) -> int:
    values, weights = zip(*weighted, strict=True)
    return int(chance.choices(values, weights)[0])


# --- as objects -----------------------------------------------------------------------------------------------------


def _node(recipe: Recipe, index: int) -> Node:
    return node(f"n{index:05d}", cpu=f"{recipe.node_millis}m", memory=f"{recipe.node_mib}Mi", pods="110")


def _workload(index: int, replicas: int) -> Workload:
    return Workload(
        api_version="apps/v1",
        kind="ReplicaSet",
        metadata=meta(f"d{index:05d}", namespace="work", uid=f"uid-d{index:05d}"),
        spec=WorkloadSpec(replicas=replicas),
    )


class _Template:
    """What the pods of a Deployment share."""

    def __init__(self, layout: Layout, index: int) -> None:
        self._name = f"d{index:05d}"
        requests = {"cpu": f"{layout.millis[index]}m", "memory": f"{layout.mib[index]}Mi"}
        self._containers = (Container(name="app", image="pause", resources=ResourceRequirements(requests=requests)),)
        self._owners = (
            OwnerReference(
                api_version="apps/v1", kind="ReplicaSet", name=self._name, uid=f"uid-{self._name}", controller=True
            ),
        )
        self._labels = {"app": self._name}
        self._status = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))

    def pod(self, number: int, place: str) -> Pod:
        """Return one pod on a node."""
        name = f"{self._name}-{number:06d}"
        metadata = meta(name, namespace="work", uid=f"uid-{name}", labels=self._labels, owners=self._owners)
        spec = PodSpec(node_name=place, scheduler_name="default-scheduler", containers=self._containers, priority=0)
        return Pod(metadata=metadata, spec=spec, status=self._status)


# --- public data ----------------------------------------------------------------------------------------------------


def data_file(*parts: str) -> Path:
    """Return a file of the public data; raises `MissingDataError` that says which is missing."""
    for folder in FOLDERS:
        if (path := folder.joinpath(*parts)).is_file():
            return path
    raise MissingDataError(f"needs {'/'.join(parts)}, which is neither in {FOLDERS[0]} nor in {FOLDERS[1]}")


def load_snapshot(folder: str) -> Snapshot:
    """Return the snapshot of one of the folders that have one: `vmr_m`, `spread60`.

    They are instances, not clusters: what they do not hold, such as disruption budgets, there is none of.
    """
    return Snapshot.from_json(gzip.decompress(data_file(folder, "snapshot.json.gz").read_bytes()), SnapshotKind)


def load_kwok_placements() -> dict[str, Snapshot]:
    """Return the small clusters that kube-scheduler left with pending pods, by their seed."""
    raw = json.loads(data_file("kwok_placements", "instances_n4_p16_u095.json").read_text())
    return {one["seed"]: Snapshot.from_api(list(_kwok_items(one))) for one in raw}


def _kwok_items(instance: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in instance["nodes"]:
        amounts = {"cpu": f"{one['cap_cpu_m']}m", "memory": str(one["cap_mem_bytes"]), "pods": "110"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": one["name"]},
            "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    for one in instance["pods"]:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": one["rs"], "uid": one["rs"], "controller": True}
        requests = {"cpu": f"{one['cpu_m']}m", "memory": str(one["mem_b"])}
        spec = {"containers": [{"name": "app", "resources": {"requests": requests}}], "priority": one["priority"]}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": one["name"], "namespace": "kwok", "ownerReferences": [owner]},
            "spec": {**spec, **({"nodeName": one["node"]} if one["node"] else {})},
            "status": {"phase": "Running" if one["node"] else "Pending"},
        }
