"""Clusters as they are: every Deployment asks for amounts of its own, of several resources, under several rules.

A family is a function of its name, size and seed. Deployments come until the nodes are full, each pod to the least
allocated of some random nodes that its rules allow; then Deployments shrink. `most_freed` is the optimum over final
states by an integer program of its own, without the order of moves, so no plan frees more. It knows what pods of a
Deployment ask of one another: anti-affinity to a node, and spread over zones.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np

from berth_core import Affinity, LabelSelector, Pod, PodAffinityTerm, Taint, Toleration
from berth_core import PodAffinity as Terms
from berth_core import TopologySpreadConstraint as Spread
from berth_core.snapshot import Snapshot
from berth_core.workloads import Workload, WorkloadSpec
from berth_descheduler.planner.problem import Problem, find_sources
from berth_descheduler.planner.simulation import NodeIndex, State
from berth_descheduler.planner.solver import Ints, PackingModel, build_packing_model
from berth_descheduler.planner.solver.bounds import holds
from builders import meta, node, owner, pod

FAMILIES: Final = ("resources", "gpus", "mixed", "pools", "multi")
"""The small families, with an optimum; `multi` has the resources and rules of all others at once."""

_WITH_DEVICES: Final = frozenset({"resources", "multi"})
_WITH_GPUS: Final = frozenset({"gpus", "multi"})
_WITH_RULES: Final = frozenset({"mixed", "multi"})
_WITH_TAINTS: Final = frozenset({"mixed", "pools", "multi"})

GPU: Final = "example.com/gpu"
DISK: Final = "ephemeral-storage"
NIC: Final = "example.com/nic"
ZONE: Final = "topology.kubernetes.io/zone"
POOL: Final = "pool"
DEDICATED: Final = Taint(key="dedicated", value="batch", effect="NoSchedule")

_SAMPLED: Final = 8
_IN_VAIN: Final = 40


@dataclass(slots=True)
class _Place:
    """A node in numbers."""

    name: str
    free: dict[str, int]
    labels: dict[str, str]
    tainted: bool
    whole: dict[str, int]
    apps: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class _App:
    """A Deployment in numbers."""

    number: int
    asks: dict[str, int]
    rules: dict[str, Any]
    apart: bool
    spread: bool
    pool: str | None
    tolerates: bool
    on: list[_Place] = field(default_factory=list)


def family(name: str, nodes: int, seed: int) -> Snapshot:
    """Return one cluster of a family; `pairs` is of any size, with a request pair per Deployment."""
    return _Growth(name, nodes, Random(f"{name} {nodes} {seed}")).snapshot()  # noqa: S311 - an instance is no secret


class _Growth:
    """Fills a cluster and lets Deployments shrink."""

    def __init__(self, name: str, nodes: int, chance: Random) -> None:
        self._name, self._chance = name, chance
        self._places = [self._place(index) for index in range(nodes)]
        self._apps: list[_App] = []
        in_vain = 0
        while in_vain < _IN_VAIN and self._used() < 0.9:
            in_vain = 0 if self._deploy() else in_vain + 1
        self._shrink()

    def snapshot(self) -> Snapshot:
        """Return the cluster."""
        nodes = tuple(
            node(
                place.name,
                cpu=f"{place.whole['cpu']}m",
                memory=f"{place.whole['memory']}Mi",
                allocatable={
                    name: f"{amount}Mi" if name == DISK else str(amount)
                    for name, amount in place.whole.items()
                    if name not in {"cpu", "memory", "pods"}
                },
                labels=place.labels,
                taints=(DEDICATED,) if place.tainted else (),
            )
            for place in self._places
        )
        apps = [app for app in self._apps if app.on]
        workloads = tuple(
            Workload(
                api_version="apps/v1",
                kind="ReplicaSet",
                metadata=meta(f"d{app.number:05d}", namespace="default", uid=f"uid-d{app.number:05d}"),
                spec=WorkloadSpec(replicas=len(app.on)),
            )
            for app in apps
        )
        return Snapshot(nodes=nodes, pods=tuple(one for app in apps for one in _pods(app)), workloads=workloads)

    def _place(self, index: int) -> _Place:
        chance, whole = self._chance, {"cpu": 16_000, "memory": 65_536, "pods": 110}
        labels = {ZONE: f"zone-{index % 3}"}
        if self._name in _WITH_DEVICES:
            whole |= {DISK: 200_000, NIC: 16}
        if self._name == "pairs":
            cores = chance.choice((8, 16, 32))
            whole |= {"cpu": 1000 * cores, "memory": 4096 * cores, DISK: 100_000}
        if self._name in _WITH_GPUS and index % 2:
            whole |= {"cpu": 48_000, "memory": 262_144, GPU: 8}
        if self._name == "pools":
            labels[POOL] = ("web", "data", "batch")[index % 3]
            if labels[POOL] == "data":
                whole |= {"memory": 131_072}
        tainted = self._name in _WITH_TAINTS and chance.random() < 0.2
        return _Place(f"n{index:05d}", dict(whole), labels, tainted, whole)

    def _used(self) -> float:
        """Return the share of the scarcer of cores and memory that is requested."""
        left = (
            sum(place.free[name] for place in self._places) / sum(place.whole[name] for place in self._places)
            for name in ("cpu", "memory")
        )
        return 1 - min(left)

    def _deploy(self) -> bool:
        """Add a Deployment; return whether a pod of it found a node."""
        chance = self._chance
        large = self._name != "pairs"
        mean, lean = 5.3 if large else 3.2, chance.choice((-0.5, 0.5))
        millis = min(12_000, 10 * max(3, int(chance.lognormvariate(mean + lean, 0.6))))
        memory = min(49_152, 41 * max(3, int(chance.lognormvariate(mean - lean, 0.6))))
        asks = {"cpu": millis, "pods": 1, "memory": memory}
        if self._name == "pairs":
            asks |= {DISK: 10 * int(chance.lognormvariate(4.0, 1))}
        if self._name in _WITH_DEVICES:
            asks |= {DISK: 100 * int(chance.choice((0, 2, 10, 60)) * chance.random() * 3)}
            asks |= {NIC: chance.choice((0, 0, 1, 2))}
        if self._name in _WITH_GPUS and chance.random() < 0.4:
            asks |= {GPU: chance.choice((1, 1, 1, 2, 2, 4))}
        rules = self._name in _WITH_RULES
        app = _App(
            number=len(self._apps),
            asks=asks,
            rules={},
            apart=rules and chance.random() < 0.2,
            spread=rules and chance.random() < 0.15,
            pool=chance.choice(("web", "data", "batch", None)) if self._name == "pools" else None,
            tolerates=self._name in _WITH_TAINTS and chance.random() < 0.4,
        )
        self._apps.append(app)
        most = 6 if large else max(12, len(self._places) // 6)
        for _ in range(1 + chance.randrange(most)):
            place = self._room(app)
            if place is None:
                break
            self._hold(app, place, 1)
        return bool(app.on)

    def _room(self, app: _App) -> _Place | None:
        fit = self._chance.sample(self._places, min(len(self._places), 4 * _SAMPLED))
        fit = [place for place in fit if self._fits(app, place)][:_SAMPLED]
        return max(fit, key=lambda place: place.free["cpu"] / place.whole["cpu"], default=None)

    def _fits(self, app: _App, place: _Place) -> bool:
        if any(amount > place.free.get(name, 0) for name, amount in app.asks.items() if amount):
            return False
        if (place.tainted and not app.tolerates) or (app.pool and place.labels.get(POOL) != app.pool):
            return False
        if app.apart and place.apps[app.number]:
            return False
        if app.spread:
            zones = Counter(one.labels[ZONE] for one in app.on)
            return zones[place.labels[ZONE]] + 1 - min(zones[f"zone-{index}"] for index in range(3)) <= 1
        return True

    def _hold(self, app: _App, place: _Place, times: int) -> None:
        for name, amount in app.asks.items():
            place.free[name] = place.free.get(name, 0) - times * amount
        place.apps[app.number] += times
        if times > 0:
            app.on.append(place)
        else:
            app.on.remove(place)

    def _shrink(self) -> None:
        """Take pods away, Deployment by Deployment, until half (pairs: little more than a fourth) is used."""
        chance = self._chance
        aim = 0.27 if self._name == "pairs" else 0.5
        order = self._apps.copy()
        chance.shuffle(order)
        for app in order:
            if self._used() <= aim:
                return
            for _ in range(int(len(app.on) * chance.uniform(0.5, 1))):
                self._hold(app, app.on[-1] if app.spread else chance.choice(app.on), -1)


def _pods(app: _App) -> Iterator[Pod]:
    name = f"d{app.number:05d}"
    labels, select = {"app": name}, LabelSelector(match_labels={"app": name})
    requests = {key: str(amount) for key, amount in app.asks.items() if key not in {"cpu", "memory", "pods"} and amount}
    if DISK in requests:
        requests[DISK] += "Mi"
    affinity = None
    if app.apart:
        terms = (PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=select),)
        apart = Terms(required_during_scheduling_ignored_during_execution=terms)
        affinity = Affinity(pod_anti_affinity=apart)
    spread = Spread(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=select)
    tolerations = (Toleration(key="dedicated", operator="Exists"),) if app.tolerates else ()
    for index, place in enumerate(app.on):
        yield pod(
            f"{name}-{index:05d}",
            node=place.name,
            cpu=f"{app.asks['cpu']}m",
            memory=f"{app.asks['memory']}Mi",
            requests=requests,
            labels=labels,
            controller=owner(name=name, uid=f"uid-{name}"),
            affinity=affinity,
            spread=(spread,) if app.spread else (),
            tolerations=tolerations,
            node_selector={POOL: app.pool} if app.pool else {},
        )


# --- optimum --------------------------------------------------------------------------------------------------------


def most_freed(problem: Problem, seconds: float) -> tuple[int, bool]:
    """Return how many nodes the solver frees over final states, or can at most, and whether it proved that."""
    return _optimum(problem, [1] * len(problem.cluster.nodes)).solve(seconds)


def most_saved(problem: Problem, seconds: float) -> tuple[int, bool]:
    """Return the same for what the nodes cost: a plan saves what it frees, less what the empty nodes cost it fills."""
    weights = [problem.node_weight(NodeIndex(node)) or 0 for node in range(len(problem.cluster.nodes))]
    return _optimum(problem, weights).solve(seconds)


def _optimum(problem: Problem, weights: Sequence[int]) -> "_Optimum":
    sources = find_sources(problem)
    packing = build_packing_model(problem, State(problem.cluster, sources.to_take_from), sources.to_take_from)
    to_empty, empty = (np.array(nodes, dtype=np.int64) for nodes in (sources.to_empty, sources.empty))
    examples = {
        kind: problem.cluster.classes[pods].example
        for kind, pods in enumerate(packing.class_of)
        if packing.dependent[kind]
    }
    apart = frozenset(kind for kind, example in examples.items() if _keeps_apart(example))
    spread = frozenset(kind for kind, example in examples.items() if example.spec.topology_spread_constraints)
    zones = [placed.metadata.labels.get(ZONE, "") for placed in problem.cluster.nodes]
    return _Optimum(packing, to_empty, empty, _Rules(apart, spread, zones), weights)


def _keeps_apart(example: Pod) -> bool:
    """Return whether pods like this one shun each other on a node, by the terms that `family` writes."""
    return example.spec.affinity is not None and example.spec.affinity.pod_anti_affinity is not None


@dataclass(frozen=True)
class _Rules:
    """What pods of a kind ask of one another, by the terms that `family` writes."""

    apart: frozenset[int]
    """The kinds of which no node takes two."""

    spread: frozenset[int]
    """The kinds that are spread over zones, so that no pod comes to a zone but the lowest."""

    zones: Sequence[str]
    """The zone of each node."""


class _Optimum:
    """One integer program: which nodes are kept, and how many pods of each kind on each."""

    def __init__(
        self, packing: PackingModel, to_empty: Ints, empty: Ints, rules: _Rules, weights: Sequence[int]
    ) -> None:
        self._packing = packing
        self._counts = np.zeros((packing.nodes, packing.kinds), dtype=np.int64)
        pods = np.flatnonzero(packing.pod_kind >= 0)
        np.add.at(self._counts, (packing.pod_node[pods], packing.pod_kind[pods]), 1)
        self._rules = rules
        self._weights = np.array(weights, dtype=np.int64)  # (nodes,), what each costs that is kept
        self._may = np.zeros(packing.nodes, dtype=bool)
        self._may[to_empty] = self._may[empty] = True
        self._empty = empty

    def solve(self, seconds: float) -> tuple[int, bool]:
        """Solve in so many seconds of the processor; the upper bound stands if they were too few."""
        import highspy  # noqa: PLC0415 - an extra

        packing, solver, inf = self._packing, highspy.Highs(), highspy.kHighsInf
        solver.setOptionValue("output_flag", False)  # noqa: FBT003 - the solver's interface
        solver.setOptionValue("threads", 1)
        ends = time.process_time() + seconds  # of the processor: the solver's own limit is by the clock

        def interrupt(event: Any) -> None:  # noqa: ANN401 - the solver has no types
            event.data_in.user_interrupt = time.process_time() > ends

        solver.cbMipInterrupt += interrupt
        hold, numbers = holds(packing), {}
        for place in range(packing.nodes):
            cost, least = (float(self._weights[place]), 0.0) if self._may[place] else (0.0, 1.0)
            solver.addCol(cost, least, 1.0, 0, [], [])
        for kind in np.flatnonzero(self._counts.sum(axis=0)).tolist():
            allowed = packing.allowed(kind) & packing.takes | (self._counts[:, kind] > 0)
            total = int(self._counts[:, kind].sum())
            for place in np.flatnonzero(allowed).tolist():
                numbers[place, kind] = solver.numVariables
                most = max(1, int(self._counts[place, kind])) if kind in self._rules.apart else total
                solver.addCol(0.0, 0.0, float(most), 0, [], [])
            mine = [numbers[place, kind] for place in np.flatnonzero(allowed).tolist()]
            solver.addRow(float(total), float(total), len(mine), mine, [1.0] * len(mine))
            if kind in self._rules.spread:
                self._spread(solver, numbers, kind)
        for column in range(solver.numVariables):
            solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        for place in range(packing.nodes):
            mine = [(number, kind) for (at, kind), number in numbers.items() if at == place]
            for resource in range(len(hold)):
                limit = float(hold[resource, place])
                scale = max(1.0, limit)
                used = [(number, float(packing.need[kind, resource]) / scale) for number, kind in mine]
                used = [(number, amount) for number, amount in used if amount] + [(place, -limit / scale)]
                solver.addRow(-inf, 0.0, len(used), [one for one, _ in used], [amount for _, amount in used])
        solver.run()
        info = solver.getInfo()
        kept = int(np.ceil(info.mip_dual_bound - 1e-6))
        proven = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return int(self._weights[self._may].sum() - self._weights[self._empty].sum()) - kept, proven

    def _spread(self, solver: Any, numbers: Mapping[tuple[int, int], int], kind: int) -> None:  # noqa: ANN401 - the solver has no types
        """Add the rows of a spread over zones by one at most.

        The lowest zone never has fewer pods than before, and one to which pods came has one more than it at most.
        """
        inf, zones = float("inf"), np.array(self._rules.zones)
        before = {zone: int(self._counts[zones == zone, kind].sum()) for zone in sorted({*self._rules.zones})}
        lowest = solver.numVariables
        solver.addCol(0.0, float(min(before.values())), float(sum(before.values())), 0, [], [])
        for zone, count in before.items():
            comes = solver.numVariables
            solver.addCol(0.0, 0.0, 1.0, 0, [], [])
            mine = [(at, number) for (at, of), number in numbers.items() if of == kind and zones[at] == zone]
            columns = [number for _, number in mine]
            solver.addRow(0.0, inf, len(mine) + 1, [*columns, lowest], [*[1.0] * len(mine), -1.0])
            slack = float(count + 1)
            amounts = [*[1.0] * len(mine), -1.0, slack]
            solver.addRow(-inf, 1.0 + slack, len(mine) + 2, [*columns, lowest, comes], amounts)
            for at, number in mine:
                there = float(self._counts[at, kind])
                solver.addRow(-inf, there, 2, [number, comes], [1.0, -float(sum(before.values()))])
