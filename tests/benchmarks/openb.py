"""The GPU trace of USENIX ATC '23 as clusters, and the least fragmentation that some moves can leave on them.

The trace has nodes and pods that arrive, and no placement: each pod goes to the node with the largest free share on
average over cores, memory and GPUs, until so much of the GPUs is requested. Shares of GPUs are thousandths that are
added up over the GPUs of a node, as an extended resource is; that a share has to fit on one GPU is not modelled, nor
are the models of GPUs, which no pod of the list names.

`most_usable` is the optimum over final states, without the order of moves, so no plan with as many moves reaches more.
What may become of one node, some pods fewer and some more, is a column of a program that chooses one for each node, and
moves no more pods than allowed. Columns are generated while one is worth more than its prices: the relaxation over them
then bounds every plan, and what the integer program makes of them is the optimum wherever the two meet.
"""

import csv
import lzma
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from benchmarks.instances import data_file
from berth_core import Pod
from berth_core.snapshot import Snapshot
from berth_core.workloads import Workload, WorkloadSpec
from berth_descheduler.goals.lower_fragmentation.strategy import MinimizeFragmentation
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import State
from berth_descheduler.planner.solver import Ints, PackingModel, build_packing_model
from berth_descheduler.planner.workload_mix import read_mix
from builders import meta, node, owner, pod

GPU: Final = "example.com/gpu-milli"
_FOLDER: Final = "openb_gpu2023"
_Amounts = tuple[int, int, int]
"""Thousandths of cores, MiB, thousandths of GPUs."""


def openb(fill: Fraction, *, every: int = 1, pods: str = "default") -> Snapshot:
    """Return a cluster of every so many-th node, filled with the pods of a list; raises `MissingDataError`."""
    nodes = [_node_amounts(row) for row in _rows("openb_node_list_gpu_node")[::every]]
    placed = tuple(_place(nodes, [_pod_amounts(row) for row in _rows(f"openb_pod_list_{pods}")], fill))
    shapes = Counter(asks for asks, _ in placed)
    names = {asks: f"d{number:03d}" for number, asks in enumerate(sorted(shapes))}
    return Snapshot(
        nodes=tuple(
            node(f"n{index:04d}", cpu=f"{cpu}m", memory=f"{memory}Mi", pods="110", allocatable={GPU: str(gpu)})
            for index, (cpu, memory, gpu) in enumerate(nodes)
        ),
        pods=tuple(_pod(names[asks], number, asks, place) for number, (asks, place) in enumerate(placed)),
        workloads=tuple(
            Workload(
                api_version="apps/v1",
                kind="ReplicaSet",
                metadata=meta(names[asks], namespace="default", uid=f"uid-{names[asks]}"),
                spec=WorkloadSpec(replicas=number),
            )
            for asks, number in shapes.items()
        ),
    )


def _rows(name: str) -> list[dict[str, str]]:
    with lzma.open(data_file(_FOLDER, f"{name}.csv.xz"), "rt", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _node_amounts(row: dict[str, str]) -> _Amounts:
    return int(row["cpu_milli"]), int(row["memory_mib"]), 1000 * int(row["gpu"])


def _pod_amounts(row: dict[str, str]) -> _Amounts:
    return int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]) * int(row["gpu_milli"])


def _place(nodes: list[_Amounts], pods: list[_Amounts], fill: Fraction) -> Iterator[tuple[_Amounts, int]]:
    """Yield the pods that find room, each with its node, until so much of the GPUs is requested."""
    free = [list(amounts) for amounts in nodes]
    most, used = fill * sum(gpu for _, _, gpu in nodes), 0
    for asks in pods:
        if used >= most:
            return
        fit = [place for place, left in enumerate(free) if all(map(int.__ge__, left, asks))]
        if fit:
            place = max(fit, key=lambda one: (_free_share(free[one], nodes[one]), -one))
            free[place] = list(map(int.__sub__, free[place], asks))
            used += asks[2]
            yield asks, place


def _free_share(left: list[int], whole: _Amounts) -> int:
    return sum(10**9 * have // most for have, most in zip(left, whole, strict=True))


def _pod(name: str, number: int, asks: _Amounts, place: int) -> Pod:
    cpu, memory, gpu = asks
    return pod(
        f"{name}-{number:05d}",
        node=f"n{place:04d}",
        cpu=f"{cpu}m",
        memory=f"{memory}Mi",
        requests={GPU: str(gpu)} if gpu else {},
        labels={"app": name},
        controller=owner(name=name, uid=f"uid-{name}"),
    )


# --- optimum --------------------------------------------------------------------------------------------------------

_ROUNDS: Final = 200
_BEAMS: Final = (40, 400, None)
"""As many states are gone on from, until that finds nothing more; in the end from all."""

_PER_NODE: Final = 8
"""As many columns of one node are added in a round."""

_SLACK: Final = 1e-6
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Optimum:
    """How much less can be fragmented after some moves, in amounts times pods of the mix."""

    most: int
    """No plan gains more."""

    reached: int
    """What the best known final state gains."""

    @property
    def proven(self) -> bool:
        """Return whether the best known final state is the optimum."""
        return self.most == self.reached


@dataclass(frozen=True, slots=True)
class _Column:
    """What becomes of a node: the kinds of the pods that leave and come, and what that gains."""

    node: int
    leave: tuple[int, ...]
    come: tuple[int, ...]
    gain: int


def most_usable(problem: Problem, moves: int, known: Sequence[tuple[int, int, int]], seconds: float) -> Optimum:
    """Return the optimum for a problem whose pods may go anywhere; `known` are the pods of a plan with their nodes."""
    sources = MinimizeFragmentation().possible_sources(problem)
    packing = build_packing_model(problem, State(problem.cluster, sources), sources)
    return _Master(problem, packing, moves).solve(known, seconds)


class _Nodes:
    """What is free on each node, what is on it, and how much the workload can use."""

    def __init__(self, problem: Problem, packing: PackingModel) -> None:
        cluster, mix = problem.cluster, read_mix(problem.cluster)
        self.gpu = cluster.column[problem.settings.resource_type]
        self.free: Ints = (np.array(cluster.capacity) - np.array(cluster.taken)).astype(np.int64)
        self.need: Ints = np.array([cluster.requests[one] for one in packing.class_of], dtype=np.int64)
        asking = [one for one in mix.shapes if one.amounts.get(problem.settings.resource_type)]
        self._weights = np.array([one.pods for one in asking], dtype=np.int64)
        rows = [[one.amounts.get(name) for name in cluster.resources] for one in asking]
        self._asks: Ints = np.array(rows, dtype=np.int64)
        self._asks[:, cluster.column["pods"]] = 1
        self.on: list[Counter[int]] = [Counter() for _ in cluster.nodes]
        for kind, place in zip(packing.pod_kind.tolist(), packing.pod_node.tolist(), strict=True):
            self.on[place][kind] += 1

    def usable(self, free: Ints) -> Ints:
        """Return what the mix can use of rows of free amounts."""
        fits = np.ones((len(free), len(self._asks)), dtype=bool)
        for column in range(free.shape[1]):
            fits &= free[:, column, None] >= self._asks[None, :, column]
        return np.asarray(free[:, self.gpu] * (fits @ self._weights))

    def most(self) -> int:
        """Return what the mix could use if every pod of it that asks for GPUs fitted everywhere."""
        return int(np.maximum(self.free[:, self.gpu], 0).sum() * self._weights.sum())


@dataclass(frozen=True, slots=True)
class _States:
    """Ways to fill a node so far, with what the prices say of their pods."""

    free: Ints
    worth: Floats
    last: Ints
    """The place of the last kind that came, in the order in which they come."""

    pods: list[tuple[tuple[int, ...], tuple[int, ...]]]


class _Master:
    """The program over columns."""

    def __init__(self, problem: Problem, packing: PackingModel, moves: int) -> None:
        self._nodes = _Nodes(problem, packing)
        self._moves = moves
        self._before = self._nodes.usable(self._nodes.free)
        self._kinds = packing.kinds
        self._pod_kind = packing.pod_kind
        self._columns: dict[_Column, None] = {}

    def solve(self, known: Sequence[tuple[int, int, int]], seconds: float) -> Optimum:
        """Return the optimum, or what is known of it when the time is over."""
        ends = time.monotonic() + seconds
        self._add_plan(known)
        reached = sum(one.gain for one in self._columns)
        most, beams = float(self._nodes.most() - self._before.sum()), list(_BEAMS)
        for _ in range(_ROUNDS):
            value, node_price, out_price, in_price = self._relax()
            found = [
                self._search(node, out_price, in_price, -node_price[node], beam=beams[0])
                for node in range(len(node_price))
            ]
            if beams[0] is None:
                most = min(most, value + sum(max((worth for worth, _ in one), default=0.0) for one in found))
            best = [sorted(one, key=lambda pair: -pair[0])[:_PER_NODE] for one in found]
            fresh = [column for one in best for worth, column in one if worth > _SLACK * max(1.0, value)]
            fresh = [one for one in fresh if one not in self._columns]
            self._columns |= dict.fromkeys(fresh)
            if not fresh:
                beams.pop(0)
            if not beams or time.monotonic() > ends:
                break
        if int(most + _SLACK) > reached:
            reached = max(reached, self._choose(ends))
        return Optimum(max(reached, int(most + _SLACK)), reached)

    def _add_plan(self, known: Sequence[tuple[int, int, int]]) -> None:
        leave: dict[int, Counter[int]] = {}
        come: dict[int, Counter[int]] = {}
        for number, source, target in known:
            leave.setdefault(source, Counter())[int(self._pod_kind[number])] += 1
            come.setdefault(target, Counter())[int(self._pod_kind[number])] += 1
        for place in sorted({*leave, *come}):
            gone, new = leave.get(place, Counter()), come.get(place, Counter())
            out, into = tuple(sorted((gone - new).elements())), tuple(sorted((new - gone).elements()))
            need = self._nodes.need
            free = self._nodes.free[place] + need[list(out)].sum(axis=0) - need[list(into)].sum(axis=0)
            gain = int(self._nodes.usable(free[None])[0] - self._before[place])
            self._columns[_Column(place, out, into, gain)] = None

    def _model(self, *, whole: bool) -> Any:  # noqa: ANN401 - the solver has no types
        import highspy  # noqa: PLC0415 - an extra

        solver, inf = highspy.Highs(), highspy.kHighsInf
        solver.setOptionValue("output_flag", False)  # noqa: FBT003 - the solver's interface
        solver.setOptionValue("threads", 1)
        count = len(self._before)
        limits = [1.0] * count + [0.0] * self._kinds + [float(self._moves)]
        for limit in limits:
            solver.addRow(-inf, limit, 0, [], [])
        for one in self._columns:
            rows: Counter[int] = Counter({one.node: 1, count + self._kinds: len(one.come)})
            rows.update(count + kind for kind in one.leave)
            rows.subtract(count + kind for kind in one.come)
            used = {row: float(value) for row, value in rows.items() if value}
            solver.addCol(-float(one.gain), 0.0, inf, len(used), list(used), list(used.values()))
            if whole:
                solver.changeColIntegrality(solver.numVariables - 1, highspy.HighsVarType.kInteger)
        return solver

    def _relax(self) -> tuple[float, Floats, Floats, Floats]:
        """Return the value of the relaxation, and the prices of nodes, of leaving and of coming."""
        solver = self._model(whole=False)
        solver.run()
        duals = np.array(solver.getSolution().row_dual)
        count = len(self._before)
        prices, budget = duals[count : count + self._kinds], duals[-1]
        return -solver.getInfo().objective_function_value, duals[:count], prices, budget - prices

    def _choose(self, ends: float) -> int:
        solver = self._model(whole=True)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("time_limit", max(5.0, ends - time.monotonic()))
        solver.run()
        chosen = np.array(solver.getSolution().col_value) > 0.5
        return sum(one.gain for one, taken in zip(self._columns, chosen, strict=True) if taken)

    # --- columns of a node ------------------------------------------------------------------------------------------

    def _search(
        self, node: int, out_price: Floats, in_price: Floats, least: float, *, beam: int | None = None
    ) -> list[tuple[float, _Column]]:
        """Return the columns of a node that are worth more than `least`, each with how much more.

        Kinds that are larger and worth less than others do not come. With a `beam` it is no exact answer.
        """
        kinds = self._coming(node, in_price)
        most_left = float(in_price[kinds].max(initial=0.0)) if len(kinds) else 0.0
        states = self._leaving(node, out_price)
        found: list[tuple[float, _Column]] = []
        for come in range(self._moves + 1):
            usable = self._nodes.usable(states.free) - self._before[node]
            worth = states.worth + usable - least
            for at in np.flatnonzero(worth > 0).tolist():
                leave, into = states.pods[at]
                if leave or into:
                    found.append((float(worth[at]), _Column(node, leave, into, int(usable[at]))))
            rest = self._rest(states.free, kinds, in_price, (self._moves - come) * most_left)
            keep = np.flatnonzero(worth + rest > 0)
            if beam is not None:
                keep = keep[np.argsort(-(worth + rest)[keep], kind="stable")[:beam]]
            states = self._one_more(states, keep, kinds, in_price)
            if not len(states.worth):
                break
        return found

    def _rest(self, free: Ints, kinds: Ints, in_price: Floats, most: float) -> Floats:
        """Return what may still come is worth at most, by each resource alone."""
        rest = np.full(len(free), most)
        for column in range(free.shape[1] if len(kinds) else 0):
            need = self._nodes.need[kinds, column]
            if need.min(initial=1) > 0:
                rest = np.minimum(rest, free[:, column] * max(0.0, float((in_price[kinds] / need).max())))
        return rest

    def _coming(self, node: int, in_price: Floats) -> Ints:
        room = self._nodes.free[node] + sum(n * self._nodes.need[kind] for kind, n in self._nodes.on[node].items())
        kinds = [kind for kind in np.flatnonzero(in_price > 0).tolist() if (self._nodes.need[kind] <= room).all()]
        kept: list[int] = []
        for kind in sorted(kinds, key=lambda kind: (-in_price[kind], tuple(self._nodes.need[kind]))):
            if not any((self._nodes.need[one] <= self._nodes.need[kind]).all() for one in kept):
                kept.append(kind)
        return np.array(kept, dtype=np.int64)

    def _leaving(self, node: int, out_price: Floats) -> _States:
        sets: list[tuple[int, ...]] = [()]
        for kind, number in sorted(self._nodes.on[node].items()):
            sets = [(*one, *(kind,) * n) for one in sets for n in range(min(number, self._moves - len(one)) + 1)]
        free = np.array([self._nodes.free[node] + self._nodes.need[list(one)].sum(axis=0) for one in sets])
        worth = np.array([out_price[list(one)].sum() for one in sets])
        return _States(free, worth, np.zeros(len(sets), dtype=np.int64), [(one, ()) for one in sets])

    def _one_more(self, states: _States, keep: Ints, kinds: Ints, in_price: Floats) -> _States:
        """Return the states with one more pod, of the same kind as the last or a later one."""
        free = states.free[keep][:, None, :] - self._nodes.need[kinds][None, :, :]
        fits = (free >= 0).all(axis=2) & (np.arange(len(kinds))[None, :] >= states.last[keep][:, None])
        rows, places = np.nonzero(fits)
        numbers = zip(keep[rows].tolist(), kinds[places].tolist(), strict=True)
        pods = [(states.pods[row][0], (*states.pods[row][1], kind)) for row, kind in numbers]
        worth = states.worth[keep[rows]] + in_price[kinds[places]]
        return _States(free[rows, places], worth, places, pods)
