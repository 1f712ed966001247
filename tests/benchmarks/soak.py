"""Makes many runs on a sandbox whose pods come and go, and prints what each did and how many pods went to and fro.

`python tests/benchmarks/soak.py [--runs 20 --seed 1]`. It decides nothing: the short version among the cluster tests
does. The cool-down is shorter than the hour of policies, so that the runs go on finding something to do;
`--pod-cool-down 0s` shows for comparison what happens without it.
"""
# ruff: noqa: T201 - it prints

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from churn import Churn, soak
from control_planes import control_plane
from descheduling_stage import Scene
from service_processes import running_operator


def main() -> None:
    arguments = read_arguments()
    options = ("--strategy=consolidate", "--taint-freed", f"--pod-cool-down={arguments.pod_cool_down}")
    with (
        tempfile.TemporaryDirectory() as folder,
        control_plane() as sandbox,
        running_operator(sandbox, Path(folder)),
        sandbox.connect() as client,
    ):
        scene = Scene(sandbox, client, Path(folder), "shop", planner=())
        scene.set_up(high=arguments.high, low=arguments.low)
        churn = Churn(arguments.seed, changes=arguments.changes)
        found = soak(scene, churn, runs=arguments.runs, options=options, tell=print)
    print(f"{arguments.runs} runs, {found.moves} pods moved, {found.counted} to and fro as the runs count them,")
    print(f"{found.ping_pong} moved twice as the plans tell it; verdicts: {', '.join(found.verdicts)}")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--high", type=int, default=8, help="nodes that are half full at first")
    parser.add_argument("--low", type=int, default=16, help="nodes that have few pods at first")
    parser.add_argument("--changes", type=int, default=4, help="how much happens between two runs")
    parser.add_argument("--pod-cool-down", default="20s")
    return parser.parse_args()


if __name__ == "__main__":
    main()
