"""Clusters on which room for one large shape is hard to make: no two Deployments ask for the same.

A cluster is a function of its number of nodes and seed. Every Deployment has a request pair of its own; pods come to
the least allocated of some random nodes until these are full, and then every Deployment shrinks. What is free is then
in many pieces, each too small for the shape.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from berth_core import Pod
from berth_core.snapshot import Snapshot
from berth_core.workloads import Workload, WorkloadSpec
from builders import meta, node, owner, pod

ROOM_SHAPES: Final = ("cpu=6,memory=24Gi", "cpu=12,memory=40Gi")
"""What to make room for."""

_PAIRS_PER_NODE: Final = 6
_SAMPLED: Final = 6
_FULL: Final = 0.93
_SHARES: Final = (0.72, 0.84)
"""What is requested of the nodes at the end, by the seed's parity."""


def room_family(nodes: int, seed: int) -> Snapshot:
    """Return one cluster, with six request pairs for each node."""
    return _Growth(nodes, seed).snapshot()


class _Growth:
    """Fills a cluster and lets its Deployments shrink."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._chance = Random(f"room {nodes} {seed}")  # noqa: S311 - an instance is no secret
        cores = [self._chance.choice((16, 32, 32, 48)) for _ in range(nodes)]
        self._whole = [(1000 * one, 4096 * one) for one in cores]
        self._free = [list(one) for one in self._whole]
        self._asks = self._draw_pairs(_PAIRS_PER_NODE * nodes)
        self._placed: list[tuple[int, int]] = []
        self._fill()
        self._shrink(_SHARES[seed % len(_SHARES)])

    def snapshot(self) -> Snapshot:
        """Return the cluster."""
        nodes = tuple(
            node(f"n{index:05d}", cpu=f"{cpu}m", memory=f"{memory}Mi", pods="110")
            for index, (cpu, memory) in enumerate(self._whole)
        )
        replicas = [0] * len(self._asks)
        for app, _ in self._placed:
            replicas[app] += 1
        workloads = tuple(
            Workload(
                api_version="apps/v1",
                kind="ReplicaSet",
                metadata=meta(f"d{app:05d}", namespace="default", uid=f"uid-d{app:05d}"),
                spec=WorkloadSpec(replicas=number),
            )
            for app, number in enumerate(replicas)
        )
        return Snapshot(nodes=nodes, pods=tuple(self._pods()), workloads=workloads)

    def _draw_pairs(self, number: int) -> list[tuple[int, int]]:
        pairs: dict[tuple[int, int], None] = {}
        while len(pairs) < number:
            millis = min(8_000, 10 * max(10, int(self._chance.lognormvariate(4.7, 0.8))))
            memory = min(32_768, int(millis * self._chance.lognormvariate(1.25, 0.5)))
            pairs[millis, memory] = None
        return list(pairs)

    def _fill(self) -> None:
        total = sum(cpu for cpu, _ in self._whole)
        used = in_vain = 0
        while used < _FULL * total and in_vain < 50 * len(self._whole):
            app = self._chance.randrange(len(self._asks))
            millis, memory = self._asks[app]
            sample = self._chance.sample(range(len(self._free)), min(len(self._free), _SAMPLED))
            fit = [one for one in sample if self._free[one][0] >= millis and self._free[one][1] >= memory]
            if not fit:
                in_vain += 1
                continue
            self._hold(app, max(fit, key=lambda one: self._free[one][0]), 1)
            used += millis

    def _shrink(self, share: float) -> None:
        total, order = sum(cpu for cpu, _ in self._whole), self._placed.copy()
        self._chance.shuffle(order)
        used = sum(self._asks[app][0] for app, _ in order)
        while used > share * total:
            app, place = order.pop()
            self._hold(app, place, -1)
            used -= self._asks[app][0]

    def _hold(self, app: int, place: int, times: int) -> None:
        self._free[place][0] -= times * self._asks[app][0]
        self._free[place][1] -= times * self._asks[app][1]
        if times > 0:
            self._placed.append((app, place))
        else:
            self._placed.remove((app, place))

    def _pods(self) -> Iterator[Pod]:
        for number, (app, place) in enumerate(sorted(self._placed)):
            millis, memory = self._asks[app]
            name = f"d{app:05d}"
            yield pod(
                f"{name}-{number:05d}",
                node=f"n{place:05d}",
                cpu=f"{millis}m",
                memory=f"{memory}Mi",
                labels={"app": name},
                controller=owner(name=name, uid=f"uid-{name}"),
            )
