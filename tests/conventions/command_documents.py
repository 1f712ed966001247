"""The shape of what the commands write with `--output json`: every path with its type."""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from unittest import mock

import click
from structlog.testing import capture_logs

from berth_core.names import DEFAULT_NAMESPACE, OPERATOR_LEASE
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.cli import doctor
from berth_descheduler.cli.main import berth, run
from berth_kube.resources import DESCHEDULER_POLICIES, LEASES, MIGRATION_PLANS
from builders import FakeClock, disruption_budget, node, owner, pod
from descheduler.fake_cluster import FakeCluster, fragmented_cluster
from descheduler.stored_bodies import how, move, plan, policy
from planner.clusters import api_items

_ROOM: Final = {
    "name": "shop/big-1",
    "namespace": "shop",
    "requests": {"cpu": "4"},
    "selector": "app=big",
    "slots": [{"node": "high-1", "pod": "big-1", "podUID": "uid-big-1"}],
}
_PLAN: Final = plan(
    moves=(move("web-1"), move("api-1", target="high-2", wave=2)),
    statuses=(
        how("web-1", node="high-1", replacement="web-1~1", reservation="plan-1-1"),
        how("api-1", "Failed", reason="ReservationTimeout", message="not held in 60 s"),
    ),
    achieved={"moves": 2, "landedOnTarget": 1, "failed": 1, "freedNodes": ["low-1"], "pendingPods": 0, "seconds": 12.5},
    message="1 of 2 pods landed on their targets, 1 failed",
    rooms=[_ROOM],
    approved=True,
    approvedBy="bea",
)
_POLICY: Final = policy(
    trigger={"cron": "0 2 * * *", "timeZone": "Europe/Berlin"},
    mode="Auto",
    status={
        "lastRunTime": "2026-11-21T01:00:00Z",
        "lastVerdict": "CarriedOut",
        "lastOutcome": "3 of 3 pods landed on their targets.",
        "lastPlan": "plan-1",
        "nextRunTime": "2026-11-22T01:00:00Z",
        "warnings": ["numberOfNodes is never reached"],
        "conditions": [{"type": "Valid", "status": "True", "reason": "Accepted", "message": "it can be run"}],
    },
)


def documents() -> Iterator[str]:
    """List the documents of every command that writes some."""
    with tempfile.TemporaryDirectory() as folder:
        for name, calls in _calls(Path(folder)).items():
            shapes: dict[str, set[str]] = {}
            for arguments in calls:
                _add_shape("", json.loads(_said([*arguments, "--output", "json"])), shapes)
            lines = (f"{path}: {' or '.join(sorted(kinds))}" for path, kinds in sorted(shapes.items()))
            yield from ("", f"# berth {name} --output json", *lines)


def _calls(folder: Path) -> dict[str, list[list[str]]]:
    """Return the commands by name, each with the calls whose documents together have all fields."""
    offline = ["--snapshot", _snapshot_file(folder)]
    room = ["--strategy", "make-room", "--shape", "cpu=4,memory=8Gi,count=2"]
    return {
        "doctor": [["doctor"]],
        "drain": [["drain", "low-1", "low-2", "high-1", "--dry-run"]],
        "fragmentation": [["fragmentation", *offline, "--shape", "cpu=4,memory=8Gi"]],
        "plan": [
            ["plan", "--every-pod", *offline, *how_]
            for how_ in (["--strategy", "threshold"], ["--strategy", "consolidate"], room)
        ],
        "plans": [["plans"]],
        "policies": [["policies"]],
        "policy lint": [["policy", "lint", _policy_file(folder)]],
        "run": [["run", "--dry-run", "--strategy", "consolidate"]],
        "show": [["show", "plan-1"]],
        "top": [["top"]],
    }


def _add_shape(path: str, value: object, shapes: dict[str, set[str]]) -> None:
    """Add the paths under a value; whole numbers count as numbers, for a share may be 1."""
    if isinstance(value, dict):
        for key, one in value.items():
            _add_shape(f"{path}.{key}" if path else key, one, shapes)
    elif isinstance(value, list):
        shapes.setdefault(path or ".", set()).add("array")
        for one in value:
            _add_shape(f"{path}[]", one, shapes)
    else:
        kinds = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
        shapes.setdefault(path, set()).add(kinds[type(value)])


def _said(arguments: Sequence[str]) -> str:
    """Return what a command writes to standard output, with a cluster in memory in place of the API server."""
    said = io.StringIO()
    with contextlib.ExitStack() as stack:
        module = sys.modules[_callback_module(arguments)]
        for name, instead in (("connect", lambda **_: _cluster()), ("configure_logs", lambda *_, **__: None)):
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, instead))
        if module is doctor:  # it looks again and again before it says that something is wrong
            stack.enter_context(mock.patch.object(module, "SystemClock", FakeClock))
        stack.enter_context(capture_logs())
        stack.enter_context(contextlib.redirect_stdout(said))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        run(arguments)
    return said.getvalue()


def _callback_module(arguments: Sequence[str]) -> str:
    command: click.Command = berth
    for word in arguments:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    assert command.callback is not None
    return command.callback.__module__


def _cluster() -> FakeCluster:
    made = fragmented_cluster()
    made.remove(LEASES, made.get(LEASES, OPERATOR_LEASE, namespace=DEFAULT_NAMESPACE))  # so that doctor finds something
    made.add(MIGRATION_PLANS, _PLAN)
    made.add(DESCHEDULER_POLICIES, _POLICY)
    return made


def _snapshot_file(folder: Path) -> str:
    """Write a small cluster with a node that can be freed, a pod that stays and one that waits."""
    apps = (
        ("web-1", "n-1", "4"),
        ("ads-1", "n-1", "2"),
        ("web-2", "n-2", "1"),
        ("ledger-1", "n-3", "1"),
        ("big-1", "", "6"),
    )
    pods = [
        pod(
            name,
            namespace="shop",
            node=where,
            cpu=cpu,
            memory="2Gi",
            labels={"app": name[:-2]},
            controller=owner(name=name[:-2]),
        )
        for name, where, cpu in apps
    ]
    budget = disruption_budget("ledger", namespace="shop", match_labels={"app": "ledger"}, allowed=0)
    nodes = tuple(node(name, cpu="8", memory="32Gi") for name in ("n-1", "n-2", "n-3"))
    items = api_items(Snapshot(nodes=nodes, pods=tuple(pods), disruption_budgets=(budget,)))
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "kinds": list(SnapshotKind), "items": items}))
    return str(file)


def _policy_file(folder: Path) -> str:
    """Write a policy of which lint says something."""
    file = folder / "policy.json"
    file.write_text(json.dumps(policy(mode="Nowhere")))
    return str(file)
