"""A soak: run after run on a cluster whose pods come and go, and what the plans say of pods sent to and fro."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from berth_core.migration_plans import MigrationPlan, MoveState
from berth_kube.errors import NotFoundError
from berth_kube.resources import DEPLOYMENTS, PODS
from descheduling_stage import Scene
from waiting import eventually

KEPT_APART = "base"
"""Its pods hold the high nodes half full and stay."""


@dataclass
class Churn:
    """Draws what happens to the workloads between two runs; the same seed draws the same."""

    seed: int
    most_replicas: int = 4
    changes: int = 1
    """How much happens between two runs: controllers that are scaled, and up to two pods deleted for each of them."""

    _draw: random.Random = field(init=False)
    _made: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)  # noqa: S311 - it must be the same again

    def happen(self, scene: Scene) -> None:
        """Let pods come, go and be made again, and wait until all of them run."""
        for _ in range(self.changes):
            self._change(scene)
        eventually("all pods run", lambda: settled(scene), seconds=120)

    def _change(self, scene: Scene) -> None:
        names = self._names(scene)
        self._scale(scene, self._draw.choice(names))
        if self._draw.random() < 0.5:
            self._made += 1
            scene.deploy(f"extra-{self._made}", replicas=1, cpu=self._draw.choice(("250m", "500m", "1")), wait=False)
        movable = [pod.metadata.name for pod in scene.pods() if pod.metadata.labels.get("app") != KEPT_APART]
        for name in self._draw.sample(sorted(movable), k=min(2, len(movable))):
            with suppress(NotFoundError):  # its controller has taken it away meanwhile
                scene.client.delete(PODS, name, namespace=scene.namespace)

    def _names(self, scene: Scene) -> list[str]:
        found = (one["metadata"]["name"] for one in scene.client.list(DEPLOYMENTS, namespace=scene.namespace).items)
        return sorted(name for name in found if name != KEPT_APART)

    def _scale(self, scene: Scene, name: str) -> None:
        body = {"spec": {"replicas": self._draw.randint(1, self.most_replicas)}}
        scene.client.merge_patch(DEPLOYMENTS, name, body, namespace=scene.namespace)


def settled(scene: Scene) -> bool:
    """Return whether the controllers have made all their pods, and all run."""
    wanted = sum(one["spec"]["replicas"] for one in scene.client.list(DEPLOYMENTS, namespace=scene.namespace).items)
    pods = scene.pods()
    return len(pods) == wanted and all(pod.is_ready and not pod.is_terminating for pod in pods)


@dataclass(frozen=True)
class Soaked:
    """What came of a soak."""

    verdicts: tuple[str, ...]
    moves: int
    counted: int
    """Moves to and fro as the runs count them."""

    ping_pong: int
    """The same as the plans tell it: pods that were moved twice, and pods that came back."""

    pods: int


def soak(
    scene: Scene, churn: Churn, *, runs: int, options: tuple[str, ...], tell: Callable[[str], None] = lambda _: None
) -> Soaked:
    """Make runs, each after something has happened, and return what came of them."""
    verdicts, counted = [], 0
    for number in range(runs):
        if number:
            churn.happen(scene)
        outcome = scene.run(*options)
        tell(f"{number + 1:3d} {outcome['message']}")
        verdicts.append(outcome["verdict"])
        counted += outcome["pingPongMoves"]
        eventually("all pods run", lambda: settled(scene), seconds=120)
    plans = scene.plans()
    moves = sum(status.state is MoveState.LANDED for plan in plans for status in plan.status.moves)
    return Soaked(tuple(verdicts), moves, counted, count_to_and_fro(plans), len(scene.pods()))


def count_to_and_fro(plans: tuple[MigrationPlan, ...]) -> int:
    """Return how many moves took a pod that a plan had brought to its node; `plans` in the order of their names."""
    brought: set[str] = set()
    count = 0
    for plan in plans:
        for move, status in zip(plan.spec.moves, plan.status.moves, strict=True):
            count += status.state is MoveState.LANDED and move.pod in brought
        brought |= {status.replacement for status in plan.status.moves if status.replacement}
    return count
