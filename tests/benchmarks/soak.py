"""Makes many runs on a sandbox whose pods come and go, and prints what each did and how many pods went to and fro.

`python tests/benchmarks/soak.py [RUNS [SEED]]`; 20 runs unless said otherwise. It decides nothing: the short version
among the cluster tests does. Without the cool-down, for comparison: `--no-cool-down`.
"""
# ruff: noqa: T201 - it prints

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from churn import Churn, soak
from descheduling_stage import Scene
from service_processes import running_operator

OPTIONS = ("--strategy=consolidate", "--taint-freed", "--pod-cool-down=1h")
RUNS, SEED = 20, 1


def main(arguments: list[str]) -> None:
    options = OPTIONS[:2] if "--no-cool-down" in arguments else OPTIONS
    numbers = [int(one) for one in arguments if not one.startswith("-")]
    runs, seed = (*numbers, *(RUNS, SEED)[len(numbers) :])
    with (
        tempfile.TemporaryDirectory() as folder,
        Sandbox.start(SandboxSettings(), progress=print) as sandbox,
        running_operator(sandbox, Path(folder)),
        sandbox.connect() as client,
    ):
        scene = Scene(sandbox, client, Path(folder), "shop", planner=())
        scene.set_up(high=4, low=8)
        found = soak(scene, Churn(seed), runs=runs, options=options, tell=print)
    print(f"{runs} runs, {found.moves} pods moved, {found.counted} to and fro as the runs count them,")
    print(f"{found.ping_pong} pods moved twice as the plans tell it; verdicts: {', '.join(found.verdicts)}")


if __name__ == "__main__":
    main(sys.argv[1:])
