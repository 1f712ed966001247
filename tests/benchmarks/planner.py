"""The measurement of the planner: how good its plans are, how long they take, and against what.

Run it as `python tests/benchmarks/planner.py`; `--only vmr_m,spread60` for some of the rows, `--largest 1000` to leave
larger clusters out. Times are of the processor, one thread, without reading the snapshot; where a row says that it is a
whole command, by the clock. `naive` is what simple drains reach on the same problem in the same run (see
`naive_drains`), how many times as many nodes the plan frees, and how many times as many any plan can free.
"""
# ruff: noqa: T201 - it prints

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random

if sys.path[0] == str(Path(__file__).resolve().parent):  # where `planner` is this file, not the package beside it
    sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from benchmarks.constrained_instances import generate_constrained
from benchmarks.families import FAMILIES, family, most_freed, most_saved
from benchmarks.instances import MissingDataError, Recipe, data_file, generate, load_kwok_placements, load_snapshot
from benchmarks.naive_drains import best_fit, first_fit
from benchmarks.openb import GPU, most_usable, openb
from benchmarks.packings import packing
from benchmarks.priced_families import priced_family
from benchmarks.room_family import ROOM_SHAPES, room_family
from benchmarks.virtual_machines import virtual_machines
from berth_core.clock import ClockDeadline, Deadline, NoDeadline, SystemClock
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.problem import Problem, Proposal, find_sources
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.solver import build_packing_model
from berth_descheduler.planner.solver.highs import is_installed
from berth_descheduler.planner.workload_mix import read_mix
from berth_descheduler.plugins.defragmentation import Defragmentation, DefragmentationArgs
from planner.clusters import api_items, carried_out, without_pod
from planner.quick_replay import replay_steps
from planner_settings import args_of, planner_settings

SIZES = (1_000, 5_000, 10_000)
FIVE_SIZES = (625, 1_250, 2_500, 5_000, 10_000)
CONSTRAINED_SIZES = (500, 1_000, 2_000, 5_000, 10_000)
SCALE_SIZES = (1_250, 2_500, 5_000, 10_000, 20_000)
LARGEST = 50_000
BUDGET_SHARE = 0.05
FAMILY_CASES = 6
FAMILY_NODES = 24
SMALL_NODES = 10
STEADY_CASES = 4
PRICED_CASES = 10
PACKINGS = ((12, 4, 0), (12, 4, 1), (20, 6, 0), (20, 6, 1), (30, 10, 0), (30, 10, 1), (40, 10, 0))
"""Full nodes, nodes more than these, and seed."""

OPTIMUM_SECONDS = 20.0
SOLVER_SECONDS = 2.0
"""Of the processor."""

TIED_SECONDS = {2_000: 20.0, 10_000: 60.0}
"""Of the processor, by nodes; its problem is made within them."""

MACHINE_SEEDS = 2
MACHINE_BUDGETS = (100, 200)
MACHINE_SECONDS = 60.0
"""Of the processor."""

PIECES_NODES = 100
TENTH_MOVES = (5, 10)
TENTH_FILL = Fraction(9, 10)
TENTH_FILLS = (Fraction(9, 10), Fraction(95, 100), Fraction(97, 100))
TENTH_SECONDS = 70.0
MANY_MOVES = 150
LARGE_SHAPE = "cpu=12,memory=48Gi"
BERTH = "from berth_descheduler.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    instance: str
    asked: str
    wanted: str
    reached: str
    seconds: str
    beside: str = ""

    def show(self) -> None:
        """Print the line."""
        cells = f"{self.instance:34} {self.asked:30} {self.wanted:30} {self.reached:48}"
        print(f"{cells} {self.seconds:>8}  {self.beside}", flush=True)


@dataclass(frozen=True, slots=True)
class Planned:
    """A proposal, its problem and what it took."""

    problem: Problem
    proposal: Proposal
    prepared_seconds: float
    seconds: float

    @property
    def took(self) -> str:
        """Return the seconds as the table shows them."""
        return f"{self.seconds:.2f}"


class ProcessorClock(SystemClock):
    """Goes on while this process has a processor."""

    def monotonic(self) -> float:
        return time.process_time()


def plan_on(snapshot: Snapshot, settings: PlannerSettings, deadline: Deadline | None = None) -> Planned:
    """Return a strategy's proposal; the time that it takes to read the problem is not in `seconds`."""
    started = time.perf_counter()
    strategy = Defragmentation(args_of(settings)).strategy(deadline or NoDeadline())
    problem = Problem.from_snapshot(snapshot, settings, strategy.waiting_pods(snapshot))
    _ = problem.pod_refusals, problem.pods_to_move, problem.cluster.taken
    prepared = time.perf_counter()
    gc.collect()
    begun = time.process_time()
    proposal = strategy.propose(problem, State(problem.cluster, strategy.possible_sources(problem)))
    return Planned(problem, proposal, prepared - started, time.process_time() - begun)


def consolidating(budget: int | None, *, exact: bool = True) -> PlannerSettings:
    """Return settings that free nodes."""
    return planner_settings(
        args=DefragmentationArgs.parse({"strategy": "Consolidate"}),
        max_moves=budget,
        exact=exact,
        time_limit_seconds=None,
    )


def making_room(budget: int | None, *, exact: bool = True, shapes: tuple[str, ...] = ()) -> PlannerSettings:
    """Return settings that make room."""
    args = DefragmentationArgs.parse({"strategy": "MakeRoom", "room": {"shapes": list(shapes)}})
    return planner_settings(args=args, max_moves=budget, exact=exact, time_limit_seconds=None)


def beside_naive(found: Planned) -> str:
    """Return how many nodes simple drains free, how many times as many the plan does, and could at most."""
    quality = found.proposal.quality
    if quality is None:
        return ""
    simple = {"first fit": first_fit(found.problem).nodes, "best fit": best_fit(found.problem).nodes}
    beside = (
        f"{name} {nodes} (x {quality.reached / nodes:.2f} of at most {quality.upper_bound / nodes:.2f})"
        if nodes
        else f"{name} 0"
        for name, nodes in simple.items()
    )
    return "naive " + ", ".join(beside)


def _freed(found: Planned) -> str:
    quality = found.proposal.quality
    if quality is None:
        return "?"
    share = f" = {quality.reached / quality.upper_bound:.1%}" if quality.gap else ", proven"
    fewest = ", fewest" if quality.proven_fewest_moves else f" (at least {quality.fewest_moves})"
    return f"{quality.reached} of {quality.upper_bound}{share}; {quality.moves} moves{fewest}"


# --- the rows -------------------------------------------------------------------------------------------------------


def vmr_rows() -> Iterator[Row]:
    """Yield the rows of the public placement of virtual machines."""
    snapshot = load_snapshot("vmr_m")
    nodes = {10: (3, 3), 25: (6, 6), 50: (10, 10), 100: (15, 14)}
    rates = {10: 0.4032, 25: 0.2310, 50: 0.0588, 100: 0.0014}
    for exact in (True, False) if is_installed() else (False,):
        how = "with optimal" if exact else "without optimal"
        for budget, wanted in nodes.items():
            found = plan_on(snapshot, consolidating(budget, exact=exact))
            aim = f"{wanted[0]} freed, proven" if exact else f">= {wanted[1]} freed"
            yield Row(
                f"vmr_m {how}", f"consolidate, {budget} moves", aim, _freed(found), found.took, beside_naive(found)
            )
        for budget, rate in rates.items():
            found = plan_on(snapshot, making_room(budget, exact=exact, shapes=("cpu=16",)))
            (room,) = found.proposal.room
            reached = f"rate {float(dict(room.unused_after)['cpu']):.4f}, {_freed(found)}"
            yield Row(f"vmr_m {how}", f"room for cpu=16, {budget} moves", f"rate {rate:.4f}", reached, found.took)
    for budget in nodes:
        yield _whole_command(
            "vmr_m", f"consolidate, {budget} moves", ["--strategy", "consolidate", "--max-moves", str(budget)]
        )
        options = ["--strategy", "make-room", "--shape", "cpu=16", "--max-moves", str(budget)]
        yield _whole_command("vmr_m", f"room for cpu=16, {budget} moves", options)


def machine_rows() -> Iterator[Row]:
    """Yield rows of virtual machines on hosts, each beside its bound: generated ones, and the public placement."""
    for seed in range(MACHINE_SEEDS):
        snapshot = virtual_machines(seed)
        title = f"VMR-L's kind, seed {seed}, {len(snapshot.nodes)} hosts"
        yield from _machine_rows(title, snapshot)
    yield from _machine_rows("vmr_m", load_snapshot("vmr_m"))


def _machine_rows(title: str, snapshot: Snapshot) -> Iterator[Row]:
    for budget in MACHINE_BUDGETS:
        for asked, settings in (
            ("consolidate", consolidating(budget)),
            ("room for cpu=16", making_room(budget, shapes=("cpu=16",))),
        ):
            planned = plan_on(snapshot, settings, ClockDeadline(ProcessorClock(), MACHINE_SECONDS))
            quality, rooms = planned.proposal.quality, planned.proposal.room
            gap = f"bound {quality.upper_bound / quality.reached - 1:.1%} above" if quality else ""
            rates = [dict(unused)["cpu"] for room in rooms for unused in (room.unused_before, room.unused_after)]
            beside = f"{gap}; rate {' to '.join(f'{float(rate):.4f}' for rate in rates)}" if rates else gap
            yield Row(title, f"{asked}, {budget} moves", "bound <= 5 % above", _freed(planned), planned.took, beside)


def _whole_command(folder: str, asked: str, options: list[str]) -> Row:
    """Return how long a whole command takes, from file to JSON."""
    file = str(data_file(folder, "snapshot.json.gz"))
    command = [sys.executable, "-c", BERTH, "plan", "--snapshot", file, "--output", "json", *options]
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        subprocess.run(command, check=True, stdout=out)
    return Row(f"{folder} whole command", asked, "<= 5 s", "", f"{time.perf_counter() - started:.2f}")


def spread60_rows() -> Iterator[Row]:
    """Yield the rows of the small cluster that a stock scheduler left."""
    snapshot = load_snapshot("spread60")
    for budget, wanted in ((None, "32 freed, 196 moves, proven"), (180, "30 freed")):
        found = plan_on(snapshot, consolidating(budget))
        asked = f"consolidate, {'no budget' if budget is None else f'{budget} moves'}"
        yield Row("spread60", asked, wanted, _freed(found), found.took, beside_naive(found))


def kwok_rows() -> Iterator[Row]:
    """Yield the rows of the tiny clusters with pending pods."""
    wanted = {"4848": "1 more pod, 1 move", "4219": "none possible", "7309": "both pods, 4 moves"}
    for seed, snapshot in load_kwok_placements().items():
        found = plan_on(snapshot, making_room(None))
        yield Row(f"kwok {seed[:4]}…", "room for all pending", wanted[seed[:4]], _freed(found), found.took)


def generated_rows(largest: int) -> Iterator[Row]:
    """Yield the rows of the generated clusters."""
    for size in (size for size in SIZES if size <= largest):
        yield from _consolidating_rows("scaled down", Recipe(size, 0.60, scaled_down=True), "the bound")
        yield from _consolidating_rows("spread", Recipe(size, 0.89), ">= 83 %, >= 1.18 x direct")
        yield from _room_rows(size, 0.50, "1 move")
        yield from _room_rows(size, 0.89, "<= 3 moves")


def harder_rows(_largest: int) -> Iterator[Row]:
    """Yield rows of clusters that are harder to drain: fuller ones, and nodes that are small beside their pods."""
    for seed in (0, 1, 2):
        yield from _consolidating_rows(f"93 %, seed {seed},", Recipe(1_000, 0.93, seed=seed), "")
        small = Recipe(1_000, 0.89, seed=seed, node_millis=8_000, node_mib=32 * 1024)
        yield from _consolidating_rows(f"8 cores, seed {seed},", small, "")


def judged(snapshot: Snapshot, found: Planned) -> str:
    """Return what a second reading of kube-scheduler's rules says of each step: it shares no code with the planner."""
    cluster, pods = found.problem.cluster, [placed.pod for placed in found.problem.cluster.pods]
    moves = [
        {
            "namespace": pods[step.pod].metadata.namespace,
            "pod": pods[step.pod].metadata.name,
            "source": cluster.node_name(step.source),
            "target": cluster.node_name(step.target),
        }
        for step in found.proposal.steps
    ]
    faults = replay_steps(api_items(snapshot), moves)
    return "each step fits" if not faults else f"{len(faults)} STEPS DO NOT FIT: {faults[0]}"


def small_rows(_largest: int) -> Iterator[Row]:
    """Yield the rows of small clusters with the solver, in processor time of the integer program alone."""
    for name in FAMILIES if is_installed() else ():
        reached, optima, moves, seconds, alone_seconds, verdicts = 0, 0, 0, 0.0, 0.0, set[str]()
        for seed in range(FAMILY_CASES):
            snapshot = family(name, SMALL_NODES, seed)
            found = plan_on(snapshot, consolidating(None))
            begun = time.process_time()
            optimum, is_proven = most_freed(found.problem, OPTIMUM_SECONDS)
            alone_seconds += time.process_time() - begun
            if not is_proven and found.proposal.quality:
                optimum = min(optimum, found.proposal.quality.upper_bound)
            seconds, optima, moves = seconds + found.seconds, optima + optimum, moves + len(found.proposal.steps)
            reached += found.proposal.quality.reached if found.proposal.quality else 0
            verdicts.add(judged(snapshot, found))
        freed = f"{reached} of {optima} = {reached / optima:.1%}; {moves} moves"
        title = f"{name}, {FAMILY_CASES} of {SMALL_NODES} nodes with optimal"
        beside = f"x {seconds / alone_seconds:.1f} of the program alone; {', '.join(sorted(verdicts))}"
        yield Row(title, "consolidate, no budget", ">= 99 %, <= x 3", freed, f"{seconds:.2f}", beside)


def money_rows(_largest: int) -> Iterator[Row]:
    """Yield the rows of small clusters whose nodes have prices, beside the most that can be saved."""
    most_known: dict[tuple[str, int], int] = {}
    for exact in (True, False) if is_installed() else ():
        all_reached, all_optima = 0, 0
        for name in FAMILIES:
            reached, optima, proofs, seconds, verdicts = 0, 0, 0, 0.0, set[str]()
            for seed in range(PRICED_CASES):
                snapshot, prices = priced_family(name, seed)
                planned = plan_on(snapshot, saving(prices, exact=exact))
                quality = planned.proposal.quality
                weight = quality.weight if quality else None
                if weight is None:
                    raise AssertionError
                if exact:
                    optimum, _ = most_saved(planned.problem, OPTIMUM_SECONDS)
                    most_known[name, seed] = min(optimum, weight.upper_bound)
                most = most_known[name, seed]
                reached, optima, proofs = reached + weight.reached, optima + most, proofs + (weight.reached >= most)
                seconds += planned.seconds
                verdicts.add(judged(snapshot, planned))
            title = f"{name}, {PRICED_CASES} of 13 nodes {'with' if exact else 'without'} optimal"
            saved = f"{reached / optima:.2%} of the most that is saved; {proofs} times all of it"
            yield Row(title, "consolidate by price", ">= 99.5 %", saved, f"{seconds:.2f}", ", ".join(sorted(verdicts)))
            all_reached, all_optima = all_reached + reached, all_optima + optima
        title = f"all {'with' if exact else 'without'} optimal"
        yield Row(title, "consolidate by price", ">= 99.5 %", f"{all_reached / all_optima:.2%}", "")


def saving(prices: dict[str, str], *, exact: bool) -> PlannerSettings:
    """Return settings that free what costs most."""
    args = DefragmentationArgs.parse({"strategy": "Consolidate", "nodePrice": {"instanceTypes": prices}})
    return planner_settings(args=args, max_moves=None, exact=exact, time_limit_seconds=None)


def steady_rows(_largest: int) -> Iterator[Row]:
    """Yield the rows of clusters that are planned again, with one pod fewer or after half of the moves."""
    for name in FAMILIES:
        same, moves, kept, freed, to_emptied, seconds, verdicts = 0, 0, 0, 0, 0, 0.0, set[str]()
        for seed in range(STEADY_CASES):
            snapshot = family(name, FAMILY_NODES, seed)
            first = plan(snapshot, consolidating(None, exact=False))
            owned = [pod for pod in snapshot.pods if pod.metadata.owner_references]
            gone = Random(f"{name} {seed}").choice(owned)  # noqa: S311 - an instance is no secret
            again = plan_on(without_pod(snapshot, gone.metadata.name), _like(first))
            made = {(pod, target) for pod, _, target in _named(again)}
            before = [(move.pod, move.target) for move in first.moves if move.pod != gone.metadata.name]
            same, moves = same + len(made.intersection(before)), moves + len(before)
            half = carried_out(snapshot, first.moves[: len(first.moves) // 2])
            rest = plan_on(half, _like(first))
            left = set(first.freed_nodes) & {pod.spec.node_name for pod in half.pods}
            emptied = {source for _, source, _ in _named(rest)} - {target for _, _, target in _named(rest)}
            kept, freed = kept + len(left & emptied), freed + len(left)
            to_emptied += sum(target in first.freed_nodes for _, _, target in _named(rest))
            seconds += again.seconds + rest.seconds
            verdicts.add(judged(half, rest))
        reached = f"{same} of {moves} = {same / moves:.0%}; {kept} of {freed} kept, {to_emptied} pods to such nodes"
        title = f"{name}, {STEADY_CASES} of {FAMILY_NODES} nodes, again"
        beside = ", ".join(sorted(verdicts))
        yield Row(title, "one pod fewer; after half", ">= 85 %; all kept, 0", reached, f"{seconds:.2f}", beside)


def _like(first: Plan) -> PlannerSettings:
    """Return settings that keep to a plan before."""
    settings = consolidating(None, exact=False)
    return replace(settings, run=replace(settings.run, earlier=first.moves))


def _named(found: Planned) -> list[tuple[str, str, str]]:
    """Return pod, source and target of each step."""
    cluster = found.problem.cluster
    return [
        (cluster.pods[step.pod].pod.metadata.name, cluster.node_name(step.source), cluster.node_name(step.target))
        for step in found.proposal.steps
    ]


def packing_rows(_largest: int) -> Iterator[Row]:
    """Yield the rows of clusters whose best packing is known."""
    for exact in (True, False) if is_installed() else (False,):
        optima, lines, seconds, verdicts = 0, [], 0.0, set[str]()
        for full, spread, seed in PACKINGS:
            snapshot = packing(full, spread, seed)
            found = plan_on(snapshot, consolidating(None, exact=exact))
            freed = found.proposal.quality.reached if found.proposal.quality else 0
            optima, seconds = optima + (freed == spread), seconds + found.seconds
            lines.append(f"{freed} of {spread}")
            verdicts.add(judged(snapshot, found))
        title = f"packings {'with' if exact else 'without'} optimal"
        reached = f"optimum in {optima} of {len(PACKINGS)}: {', '.join(lines)}"
        yield Row(
            title, "consolidate, no budget", "optimum in 5 of 7", reached, f"{seconds:.2f}", ", ".join(sorted(verdicts))
        )


def family_rows(largest: int) -> Iterator[Row]:
    """Yield the rows of clusters with many kinds of pods, small ones beside the optimum over final states."""
    for name in FAMILIES if is_installed() else ():
        optima, proofs, reached, seconds = 0, 0, [0, 0], [0.0, 0.0]
        for seed in range(FAMILY_CASES):
            snapshot = family(name, FAMILY_NODES, seed)
            searched = plan_on(snapshot, consolidating(None, exact=False))
            solved = plan_on(snapshot, consolidating(None), ClockDeadline(ProcessorClock(), SOLVER_SECONDS))
            optimum, proven = most_freed(searched.problem, OPTIMUM_SECONDS)
            if not proven and solved.proposal.quality:
                optimum = min(optimum, solved.proposal.quality.upper_bound)
            optima, proofs = optima + optimum, proofs + proven
            for position, planned in enumerate((searched, solved)):
                reached[position] += planned.proposal.quality.reached if planned.proposal.quality else 0
                seconds[position] += planned.seconds
        ways = (("without", ">= 95 %"), (f"{SOLVER_SECONDS:.0f} s with", ">= 99 %, multi 98 %"))
        for (way, wanted), freed, took in zip(ways, reached, seconds, strict=True):
            share = f"{freed} of {optima} = {freed / optima:.1%} ({proofs} optima proven)"
            title = f"{name}, {FAMILY_CASES} of {FAMILY_NODES} nodes, {way} optimal"
            yield Row(title, "consolidate, no budget", wanted, share, f"{took:.2f}")
    for size in (size for size in (200, 1_000) if size <= largest):
        snapshot = family("pairs", size, 0)
        found = plan_on(snapshot, consolidating(None, exact=False))
        title = f"pairs, {size} nodes, {len(snapshot.pods)} pods, {len(found.problem.cluster.classes)} kinds"
        yield Row(title, "consolidate, no budget", ">= 95 %", _freed(found), found.took)


def pieces_rows(largest: int) -> Iterator[Row]:
    """Yield the rows of room on clusters whose free capacity is in many pieces, beside the bound."""
    for seed in range(2) if largest >= PIECES_NODES else ():
        snapshot = room_family(PIECES_NODES, seed)
        title = f"pieces, seed {seed}, {PIECES_NODES} nodes, {len(snapshot.pods)} pods"
        for shape in ROOM_SHAPES:
            for budget in (10, 50):
                found = plan_on(snapshot, making_room(budget, exact=False, shapes=(shape,)))
                fits = found.proposal.room[0].fits_before
                asked = f"room for {shape}, {budget} moves"
                yield Row(title, asked, ">= 95 %", f"from {fits} to {_freed(found)}", found.took)


def openb_rows(largest: int) -> Iterator[Row]:
    """Yield the rows of the public GPU trace: all nodes, and a tenth of them beside the optimum."""
    for fill in (Fraction(8, 10), Fraction(9, 10)):
        snapshot = openb(fill)
        for budget in (10, 50, 200) if largest >= len(snapshot.nodes) else ():
            found = plan_on(snapshot, lowering(budget))
            title = f"openb {len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods"
            yield Row(title, f"GPUs {float(fill):.0%} requested, {budget} moves", "", _lowered(found), found.took)
    snapshot = openb(TENTH_FILL, every=10)
    for budget in TENTH_MOVES if is_installed() else ():
        found = plan_on(snapshot, lowering(budget))
        title = f"openb {len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods"
        asked = f"GPUs {float(TENTH_FILL):.0%} requested, {budget} moves"
        yield Row(title, asked, ">= 95 %", _lowered(found), found.took, _beside_optimum(found, budget))
    for fill in TENTH_FILLS:
        snapshot = openb(fill, every=10)
        found = plan_on(snapshot, lowering(MANY_MOVES))
        title = f"openb {len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods"
        asked = f"GPUs {float(fill):.0%} requested, {MANY_MOVES} moves"
        yield Row(title, asked, "", _lowered(found), found.took)


def lowering(budget: int | None) -> PlannerSettings:
    """Return settings that lower the fragmentation of GPUs."""
    args = DefragmentationArgs.parse({"strategy": "MinimizeFragmentation", "resourceType": GPU})
    return planner_settings(args=args, max_moves=budget, time_limit_seconds=None)


def _lowered(found: Planned) -> str:
    change, quality = found.proposal.fragmentation, found.proposal.quality
    if change is None or quality is None:
        return "?"
    least = float(change.share_before) - quality.upper_bound / 1e6
    shares = f"{float(change.share_before):.2%} to {float(change.share_after):.2%} fragmented"
    return f"{shares}, bound {least:.2%}; {quality.moves} moves"


def _beside_optimum(found: Planned, budget: int) -> str:
    """Return the optimum, or between what it lies, and how much of it the plan reaches."""
    change = found.proposal.fragmentation
    if change is None:
        return "?"
    known = [(step.pod, step.source, step.target) for step in found.proposal.steps]
    optimum, pods = most_usable(found.problem, budget, known, TENTH_SECONDS), read_mix(found.problem.cluster).pods
    gained = (change.fragmented_before - change.fragmented_after) * pods
    least = [change.share_before - Fraction(one, pods * change.free_before) for one in (optimum.most, optimum.reached)]
    said = f"{float(least[0]):.2%}, proven" if optimum.proven else f"{float(least[0]):.2%} to {float(least[1]):.2%}"
    return f"optimum {said}: {float(gained / optimum.most):.2%} of {'it' if optimum.proven else 'its bound'}"


def _consolidating_rows(name: str, recipe: Recipe, wanted: str) -> Iterator[Row]:
    snapshot = generate(recipe)
    title = f"{name} {recipe.nodes} nodes, {len(snapshot.pods)} pods"
    unlimited = {1_000: "gap 0", 5_000: "gap <= 0.2 %"}.get(recipe.nodes, "gap <= 1 node") if wanted else ""
    for budget, aim in ((int(len(snapshot.pods) * BUDGET_SHARE), wanted), (None, unlimited)):
        found = plan_on(snapshot, consolidating(budget))
        asked = "consolidate, no budget" if budget is None else f"consolidate, {budget} moves"
        yield Row(title, asked, aim, _freed(found), found.took, beside_naive(found))


def _room_rows(size: int, requested: float, wanted: str) -> Iterator[Row]:
    """Yield the row for one more of a shape than fits already."""
    snapshot = generate(Recipe(size, requested))
    fits = plan_on(snapshot, making_room(0, shapes=(LARGE_SHAPE,))).proposal.room[0].fits_before
    found = plan_on(snapshot, making_room(None, shapes=(f"{LARGE_SHAPE},count={fits + 1}",)))
    title = f"{requested:.0%} requested, {size} nodes"
    yield Row(title, f"room for {LARGE_SHAPE}, 1 more", wanted, _freed(found), found.took)


def cost_rows(largest: int) -> Iterator[Row]:
    """Yield what a plan costs at five sizes, and per node and kind of pods."""
    for size in (size for size in FIVE_SIZES if size <= largest):
        snapshot = generate(Recipe(size, 0.89))
        _reset_peak()
        before = _memory_megabytes("VmRSS")
        found = plan_on(snapshot, consolidating(int(len(snapshot.pods) * BUDGET_SHARE)))
        more = _memory_megabytes("VmHWM") - before
        classes = len(found.problem.cluster.classes)
        each = 1e9 * found.seconds / (size * classes)
        reached = f"{each:.2f} ns per node and class ({classes}); + {more:.0f} MB"
        prepared = f"read in {found.prepared_seconds:.2f} s"
        yield Row(
            f"{size} nodes, {len(snapshot.pods)} pods",
            "cost, 89 % requested",
            "< 200 MB",
            reached,
            found.took,
            prepared,
        )
        del found, snapshot
        gc.collect()


def reading_rows(largest: int) -> Iterator[Row]:
    """Yield what it takes to read clusters whose pods are tied to nodes and to each other, before any search."""
    for size in (size for size in CONSTRAINED_SIZES if size <= largest):
        recipe = Recipe(size, 0.80, node_millis=8_000, node_mib=32 * 1024)
        raw = generate_constrained(recipe).to_json()
        laps = [time.process_time()]
        snapshot = Snapshot.from_json(raw)
        laps.append(time.process_time())
        problem = Problem.from_snapshot(snapshot, consolidating(None, exact=False))
        fixed = len(problem.pod_refusals)
        laps.append(time.process_time())
        sources = find_sources(problem).to_take_from
        packing = build_packing_model(problem, State(problem.cluster, sources), sources)
        laps.append(time.process_time())
        parts = ", ".join(f"{after - before:.2f}" for before, after in pairwise(laps))
        took, pods = laps[-1] - laps[0], len(snapshot.pods)
        yield Row(
            f"constrained {size} nodes, {pods} pods",
            "reading and classes",
            {2_000: "<= 3 s", 10_000: "<= 15 s"}.get(size, ""),
            f"JSON, pods and classes, ties: {parts}",
            f"{took:.2f}",
            f"{1e6 * took / pods:.0f} us per pod; {len(problem.cluster.classes)} classes, "
            f"{packing.kinds} kinds, {fixed} pods stay",
        )
        del snapshot, problem, packing
        gc.collect()


def tied_rows(largest: int) -> Iterator[Row]:
    """Yield what is freed in a limited time where most pods are tied to nodes or to each other."""
    for size, seconds in TIED_SECONDS.items():
        if size > largest:
            continue
        snapshot = generate_constrained(Recipe(size, 0.80, node_millis=8_000, node_mib=32 * 1024))
        searched = plan_on(snapshot, consolidating(None, exact=False), ClockDeadline(ProcessorClock(), seconds))
        asked = f"consolidate, no budget, {seconds:.0f} s"
        wanted = ">= 96 %" if size == 2_000 else f"<= {1.1 * seconds:.0f} s"
        beside = f"{searched.prepared_seconds:.1f} s for its problem; {judged(snapshot, searched)}"
        yield Row(
            f"constrained {size} nodes, {len(snapshot.pods)} pods",
            asked,
            wanted,
            _freed(searched),
            searched.took,
            beside,
        )
        del searched, snapshot
        gc.collect()


def scale_rows(largest: int) -> Iterator[Row]:
    """Yield what whole commands take on clusters of many request pairs, at five sizes, and on the largest of few."""
    for size in (size for size in SCALE_SIZES if size <= largest):
        yield _whole_plan(Recipe(size, 0.80, scaled_down=True, pairs=4_600 * size // SCALE_SIZES[-1]))
    if largest >= LARGEST:
        yield _whole_plan(Recipe(LARGEST, 0.50, scaled_down=True))


def _whole_plan(recipe: Recipe) -> Row:
    """Return what `berth plan` takes on a generated cluster, from file to JSON."""
    snapshot = generate(recipe)
    pods = len(snapshot.pods)
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "snapshot.json", Path(folder) / "plan.json"
        file.write_bytes(snapshot.to_json())
        del snapshot
        options = ["--snapshot-kinds", "all", "--max-moves", str(int(pods * BUDGET_SHARE)), "--output", "json"]
        command = [sys.executable, "-c", BERTH, "plan", "--snapshot", str(file), *options]
        with out.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream)
            _, _, usage = os.wait4(process.pid, 0)
        found = json.loads(out.read_bytes())
    reached = f"{found['reached']} of at most {found['upperBound']}"
    seconds = usage.ru_utime + usage.ru_stime
    wanted = {SCALE_SIZES[-1]: "<= 30 s, 3 GB", LARGEST: "<= 40 s"}.get(recipe.nodes, "")
    title = f"{recipe.nodes} nodes, {pods} pods, {recipe.pairs or 'few'} pairs"
    beside = f"{1e6 * seconds / pods:.0f} us per pod, {usage.ru_maxrss / 1024**2:.1f} GB"
    return Row(title, "whole command, 5 % of the pods", wanted, reached, f"{seconds:.1f}", beside)


def _reset_peak() -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def _memory_megabytes(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


ROWS: dict[str, Callable[[int], Iterator[Row]]] = {
    "vmr_m": lambda _: vmr_rows(),
    "vmr": lambda _: machine_rows(),
    "spread60": lambda _: spread60_rows(),
    "kwok": lambda _: kwok_rows(),
    "generated": generated_rows,
    "harder": harder_rows,
    "families": family_rows,
    "small": small_rows,
    "money": money_rows,
    "packings": packing_rows,
    "steady": steady_rows,
    "pieces": pieces_rows,
    "openb": openb_rows,
    "cost": cost_rows,
    "reading": reading_rows,
    "tied": tied_rows,
    "scale": scale_rows,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default=",".join(ROWS), help="which rows, separated by commas")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="leave larger generated clusters out")
    options = parser.parse_args()
    Row("instance", "asked", "wanted", "reached", "seconds", "beside").show()
    for name in options.only.split(","):
        try:
            for row in ROWS[name](options.largest):
                row.show()
        except MissingDataError as error:
            print(f"{name}: skipped, {error}")


if __name__ == "__main__":
    main()
