"""Tries Berth on control planes of other versions of Kubernetes, and prints what was seen as rows of a table.

    python tests/benchmarks/kubernetes_versions.py [1.31 1.37 ...] [--report shared/docs/kubernetes.md]

For each version, which is built at its first use: a hundred held nodes go to their owners while five hungry pods for
each, of two schedulers, wait for a node; the demo consolidates 60 nodes; a strict API server takes the chart's objects
with all sets of values of the tests; the chart's admission policies refuse what they should, and let the rest through.
`--report` puts the rows in the page's table. The exit code is 1 if a version does not show all of it.
"""

# ruff: noqa: T201 - it prints

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core.reservations import ReservationPhase
from berth_sandbox.go_modules import DEFAULT_KUBERNETES, OTHER_KUBERNETES, control_plane
from berth_sandbox.settings import KUBERNETES_VARIABLE
from contention import SLOTS, play_contention
from demo_runs import DEMOS, LARGE, run_demo

ROOT: Final = Path(__file__).resolve().parents[2]
VERSIONS: Final = sorted((*OTHER_KUBERNETES, DEFAULT_KUBERNETES))
WRONG: Final = "**no**: "
_ROW: Final = re.compile(r"^\| (1\.\d+) .*\n", re.MULTILINE)
_BELOW_HEADS: Final = "|---|---|---|---|---|---|\n"
_SUMMARY: Final = re.compile(r"^=* ?(\d+ \w+.*) in [0-9.]+s", re.MULTILINE)


@dataclass(frozen=True)
class Seen:
    """What was seen of one version, each as a cell of the table."""

    release: str
    handovers: str
    consolidation: str
    chart: str
    policies: str

    def row(self, version: str) -> str:
        return f"| {' | '.join((version, *astuple(self)))} |"

    def complete(self) -> bool:
        return WRONG not in self.row("")


def look_at(version: str) -> Seen:
    """Try one version; whatever starts a sandbox without naming one gets it."""
    os.environ[KUBERNETES_VARIABLE] = version
    return Seen(
        release=control_plane(version)[1].program_version(),
        handovers=_hand_over(),
        consolidation=_consolidate(),
        chart=_test("tests/chart/test_chart_applies.py"),
        policies=_test("tests/cluster/test_admission_policies.py"),
    )


def _hand_over() -> str:
    with tempfile.TemporaryDirectory() as folder:
        found = play_contention(Path(folder))
    succeeded = found.phases.count(ReservationPhase.SUCCEEDED)
    others = len(found.placed_hungry) + len(found.overbooked)
    right = succeeded == len(found.nodes_of_owners) == SLOTS and not others
    return f"{'' if right else WRONG}{succeeded} of {SLOTS}"


def _consolidate() -> str:
    done = run_demo(*DEMOS[LARGE])
    numbers = json.loads(done.stdout or "{}")
    if done.returncode or numbers.get("plan_only"):
        return f"{WRONG}exit code {done.returncode}"
    right = numbers["freed_nodes"] == numbers["upper_bound"] and numbers["landed_on_target"] == numbers["moves"]
    shown = f"{numbers['freed_nodes']} of {numbers['upper_bound']} nodes, {numbers['landed_on_target']} moves"
    return f"{'' if right else WRONG}{shown}"


def _test(path: str) -> str:
    """Run all tests of a file; return how many passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    summary = _SUMMARY.search(done.stdout)
    if done.returncode or summary is None:
        print(done.stdout[-8000:], done.stderr[-2000:], file=sys.stderr)
        return f"{WRONG}{summary[1] if summary else 'no test ran'}"
    return summary[1]


def write(page: Path, version: str, row: str) -> None:
    """Put a row into the page's table, in the place of the one that it has of the same version."""
    text = page.read_text(encoding="utf-8")
    rows = {found[1]: found[0] for found in _ROW.finditer(text)} | {version: f"{row}\n"}
    head, line, rest = _ROW.sub("", text).partition(_BELOW_HEADS)
    page.write_text(head + line + "".join(rows[one] for one in sorted(rows)) + rest, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    parser.add_argument("--report", type=Path, metavar="PAGE", help="put the rows into this page, too")
    chosen = parser.parse_args()
    wrong = []
    for version in chosen.versions:
        seen = look_at(version)
        print(seen.row(version), flush=True)
        if chosen.report:
            write(chosen.report, version, seen.row(version))
        if not seen.complete():
            wrong.append(version)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
