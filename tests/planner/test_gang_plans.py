"""No plan takes more of a gang away at once than it can spare, whatever gang it is."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from berth_core import Pod
from berth_core.migration_plans import PlannedMove
from berth_core.objects.pods import SchedulingGroup
from berth_core.pod_groups import LifecyclePolicy, PodGroup, VolcanoJob
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import plan
from builders import node, pod, pod_group, volcano_job, volcano_owner, volcano_pod_group, volcano_task
from planner.clusters import consolidating

NODES: Final = tuple(f"n{number}" for number in range(6))
GROUP: Final = "scheduling.k8s.io/group-name"
RESTARTS: Final = LifecyclePolicy(event="PodEvicted", action="RestartJob")
HARMLESS: Final = LifecyclePolicy(event="PodEvicted", action="SyncJob")


@dataclass(frozen=True)
class Drawn:
    """One gang: its pods by task, what each task and all of them need, and whether an eviction restarts it."""

    pods: tuple[tuple[str, Pod], ...]
    described: VolcanoJob | PodGroup
    minimum: int
    of_task: dict[str, int]
    restarts: bool = False


def draw_job(chance: random.Random, name: str) -> Drawn:
    """Return a Volcano Job of one or two tasks."""
    tasks = [
        volcano_task(task, replicas=(size := chance.randint(1, 4)), min_available=chance.randint(0, size))
        for task in chance.choice((("worker",), ("master", "worker")))
    ]
    least = {one.name: one.min_available or 0 for one in tasks}
    size = sum(one.replicas for one in tasks)
    minimum = chance.randint(0, size)
    policies = chance.choice(((), (HARMLESS,), (RESTARTS,)))
    owner = volcano_owner(name)
    pods = tuple(
        (one.name, draw_pod(chance, f"{name}-{one.name}-{number}", owner, {"volcano.sh/task-spec": one.name}))
        for one in tasks
        for number in range(one.replicas)
    )
    job = volcano_job(*tasks, name=name, min_available=minimum, policies=policies)
    return Drawn(pods, job, minimum, least if minimum >= sum(least.values()) else {}, RESTARTS in policies)


def draw_group(chance: random.Random, name: str) -> Drawn:
    """Return a PodGroup of Volcano or of Kubernetes."""
    size = chance.randint(2, 6)
    minimum = chance.randint(0, size)
    if chance.random() < 0.5:
        pods = tuple(("", draw_pod(chance, f"{name}-{n}", None, {GROUP: name})) for n in range(size))
        return Drawn(pods, volcano_pod_group(name, min_member=minimum), minimum, {})
    member = SchedulingGroup(pod_group_name=name)
    pods = tuple(("", draw_pod(chance, f"{name}-{n}", None, {}, scheduling_group=member)) for n in range(size))
    return Drawn(pods, pod_group(name, min_count=minimum), minimum, {})


def draw_pod(chance: random.Random, name: str, owner: object, notes: dict[str, str], **spec: object) -> Pod:
    given = {} if owner is None else {"controller": owner}
    phase = chance.choice(("Running",) * 9 + ("Pending",))
    where = chance.choice(NODES) if phase == "Running" else ""
    return pod(name, cpu=chance.choice(("1", "2")), node=where, phase=phase, annotations=notes, **given, **spec)


def draw(chance: random.Random) -> tuple[Snapshot, list[Drawn]]:
    gangs = [chance.choice((draw_job, draw_group))(chance, f"g{number}") for number in range(chance.randint(1, 3))]
    singles = [pod(f"single-{n}", cpu="1", node=chance.choice(NODES)) for n in range(chance.randint(0, 4))]
    return (
        Snapshot(
            nodes=tuple(node(name, cpu="16") for name in NODES),
            pods=(*(one for gang in gangs for _, one in gang.pods), *singles),
            volcano_jobs=tuple(g.described for g in gangs if isinstance(g.described, VolcanoJob)),
            pod_groups=tuple(g.described for g in gangs if isinstance(g.described, PodGroup)),
        ),
        gangs,
    )


def undershot(moves: tuple[PlannedMove, ...], gangs: list[Drawn]) -> Iterator[str]:
    """Yield what a gang lacks while all moves of one wave are under way."""
    for wave in sorted({move.wave for move in moves}):
        away = {f"{move.namespace}/{move.pod}" for move in moves if move.wave == wave}
        for gang in gangs:
            if sum(not one.is_terminal for _, one in gang.pods) == 1:
                continue  # alone, it has nothing to lose but the pod
            gone = Counter(task for task, one in gang.pods if one.key in away)
            if not gone:
                continue
            running = Counter(task for task, one in gang.pods if one.status.phase == "Running")
            if gang.restarts:
                yield f"wave {wave} restarts {gang.described.metadata.name}"
            if running.total() - gone.total() < gang.minimum:
                yield f"wave {wave} leaves {running.total() - gone.total()} of {gang.minimum} in {gang.described}"
            for task, least in gang.of_task.items():
                if gone[task] and running[task] - gone[task] < least:
                    yield f"wave {wave} leaves {running[task] - gone[task]} of {least} in {task} of {gang.described}"


@pytest.mark.parametrize("plans", [100, pytest.param(1000, marks=pytest.mark.deep)])
def test_no_wave_of_random_plans_undershoots_a_gang(plans: int) -> None:
    moved, stayed = Counter[str](), 0
    for seed in range(plans):
        chance = random.Random(seed)  # noqa: S311 - the same clusters in every run
        snapshot, gangs = draw(chance)
        how = consolidating(per_controller=chance.randint(1, 4), per_wave=chance.randint(1, 6))
        made = plan(snapshot, how)
        assert list(undershot(made.moves, gangs)) == [], f"seed {seed}"
        names = {move.pod for move in made.moves}
        for gang in gangs:
            taken = sum(one.metadata.name in names for _, one in gang.pods)
            moved[type(gang.described).__name__] += taken
            stayed += not taken
    assert all(moved[kind] > plans // 10 for kind in ("VolcanoJob", "PodGroup")), moved
    assert stayed > plans // 10
