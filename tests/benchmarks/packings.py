"""Clusters whose best packing is known, because they were made from it: full nodes, whose pods were spread over more.

So many nodes are cut into one to four pods each, which fill them exactly; then the pods are put on more nodes, each to
the one with most room. No plan can keep fewer nodes than were cut.
"""

from random import Random
from typing import Final

from berth_core.snapshot import Snapshot
from builders import node, owner, pod

_WHOLE: Final = 1_000


def packing(full: int, spread: int, seed: int) -> Snapshot:
    """Return `full` nodes' worth of pods on `full + spread` nodes: the optimum frees `spread`."""
    chance = Random(f"packing {full} {spread} {seed}")  # noqa: S311 - an instance is no secret
    sizes = [size for _ in range(full) for size in _cut(chance)]
    left = {f"n{index:03d}": _WHOLE for index in range(full + spread)}
    pods = []
    for number, size in enumerate(sorted(sizes, reverse=True)):
        name = max(left, key=lambda one: (left[one], one))
        left[name] -= size
        controller = owner(name=f"p{number:04d}", uid=f"uid-p{number:04d}")
        pods.append(pod(f"p{number:04d}", node=name, cpu=f"{size}m", memory=None, controller=controller))
    if min(left.values()) < 0:
        return packing(full, spread, seed + 1_000)
    return Snapshot(nodes=tuple(node(name, cpu=f"{_WHOLE}m") for name in left), pods=tuple(pods))


def _cut(chance: Random) -> list[int]:
    cuts = sorted(chance.sample(range(50, _WHOLE - 50), chance.randint(0, 3)))
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, _WHOLE], strict=True)]
