"""Measures whether gangs that starve on a busy cluster run, how soon, and how many nodes are fenced for them at most.

    python tests/benchmarks/starving_jobs.py [--gangs 50] [--nodes 50] [--percent 10] [--seconds 1500] [--without 240]

Small pods fill the nodes; each runs for some seconds and is replaced at once by one that waits already, so that no node
is ever free. Beside them gangs wait, each of whose pods wants a whole node. A gang that runs ends soon. Operator and
descheduler have their default limits. First the gangs wait without the plugin for `--without` seconds, then with it in
a cluster of the same load; 0 seconds leave out either. At the end both are compared by the gangs that ran within the
time that both had. A watch counts the fenced nodes. `--logs DIR` keeps the logs.
"""

# ruff: noqa: T201 - it prints

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_kube.resources import DESCHEDULER_POLICIES
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.settings import SandboxSettings
from cluster_objects import make_namespace
from control_planes import control_plane, say_nothing
from policy_scenes import DeschedulerReplica
from service_processes import running_operator
from starving_gangs import Load, StarvingGangs, starving_policy

THRESHOLD_SECONDS: Final = 15
PERCENT: Final = 100


def measure(options: argparse.Namespace, folder: Path, *, seconds: float, plugin: bool) -> StarvingGangs:
    """Run the gangs beside the small pods in a cluster of their own, and return what was seen."""
    load = Load(options.nodes, options.gangs)
    with (
        control_plane(SandboxSettings(nodes=0), progress=say_nothing) as sandbox,
        sandbox.connect() as client,
        running_operator(sandbox, folder),
        DeschedulerReplica(sandbox, folder),
    ):
        sandbox.add_nodes(options.nodes, NodeShape(cpu=str(load.node_cpus), memory="64Gi"))
        gangs = StarvingGangs(client, make_namespace(client, "busy"), load, options.seed)
        with gangs.busy():
            gangs.starve()
            if plugin:
                client.create(
                    DESCHEDULER_POLICIES, starving_policy(options.percent, threshold_seconds=THRESHOLD_SECONDS)
                )
            begun = time.monotonic()
            while not gangs.have_all_run and time.monotonic() - begun < seconds:
                time.sleep(1)
    return gangs


def report(title: str, options: argparse.Namespace, gangs: StarvingGangs, seconds: float) -> None:
    seen = gangs.seen
    print(f"{title}: {len(seen.run)} of {options.gangs} gangs have run, within {seconds:.0f} s at most")
    print(f"  from creation to running: {_spread(seen.seconds_to_run())}")
    print(f"  most nodes fenced at once: {seen.most_fenced} of {options.nodes}")
    print(f"  small pods created meanwhile: {gangs.small_created}")
    for whose, made in (("gangs", seen.made_for(gangs=True)), ("small pods", seen.made_for(gangs=False))):
        print(f"  Reservations for {whose}: {made.total()} for {len(made)} jobs")
    print(f"  how they ended: {dict(Counter(seen.ends.values()))}")
    for text, first, last in (
        ("from its Reservation to all slots held", "asked", "held"),
        ("from all slots held to the end of the Reservation", "held", "over"),
    ):
        if found := seen.stage_seconds(first, last):
            print(f"  {text}: {_spread(found)}")
    sys.stdout.flush()


def compare(options: argparse.Namespace, without: StarvingGangs, seen: StarvingGangs) -> None:
    """Print how many gangs ran within the time that both had, and how many times as many that is."""
    seconds = min(options.without, options.seconds)
    fewer, more = (sum(took <= seconds for took in one.seen.seconds_to_run()) for one in (without, seen))
    ratio = f"{more / fewer:.1f} times as many" if fewer else "no ratio, as none ran without it"
    print(f"within {seconds:.0f} s of {options.gangs} gangs: {fewer} without the plugin, {more} with it ({ratio})")
    created = seen.small_created / without.small_created if without.small_created else 0.0
    print(f"small pods created with the plugin, per one without it, in the whole of either run: {created:.2f}")


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    middle = seconds[len(seconds) // 2]
    return f"p50 {middle:.0f} s, max {max(seconds):.0f} s ({len(seconds)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--percent", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1500)
    parser.add_argument("--without", type=float, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.logs or Path(name)
        folder.mkdir(exist_ok=True, parents=True)
        without = None
        if options.without:
            without = measure(options, folder, seconds=options.without, plugin=False)
            report("without the plugin", options, without, options.without)
        if not options.seconds:
            return 0
        gangs = measure(options, folder, seconds=options.seconds, plugin=True)
        report("with the plugin", options, gangs, options.seconds)
        if without is not None:
            compare(options, without, gangs)
    allowed = max(1, options.nodes * options.percent // PERCENT)
    print(f"{options.percent} % of {options.nodes} nodes are {allowed}")
    return 0 if gangs.have_all_run and gangs.seen.most_fenced <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
