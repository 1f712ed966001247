"""Measures how late 100 ReservationWindows on one node open and close, over a change of the clock and a restart.

    python tests/benchmarks/windows_on_time.py [--windows 100] [--down 20] [--seed 1] [--logs DIR]

The operator gets time zones of the benchmark's own, in which the clock is put forward or back four minutes after the
beginning, or it is midnight then. 40 % of the windows begin around midnight. 40 % have the zone that is put forward;
most of them begin in the hour that is left out, so in the same second. 10 % began there an hour before and end by the
wall clock. 10 % have the zone that is put back and would begin in its hour that comes again; these must not open.
Later the operator is killed, and started again after `--down` seconds; what was due meanwhile counts from when it leads
again. A watch sees when Reservations are made and over, and when their places are held and given back. The product is
not asked for the times at which they should be.
"""

# ruff: noqa: T201 - it prints

import argparse
import random
import struct
import sys
import tempfile
import time
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import (
    DEFAULT_NAMESPACE,
    PLACEHOLDER_LABEL,
    RESERVATION_NAME_ANNOTATION,
    WINDOW_API_VERSION,
    WINDOW_KIND,
    WINDOW_LABEL,
    BerthError,
    Pod,
    Reservation,
    SlotState,
)
from berth_kube import PODS, RESERVATION_WINDOWS, RESERVATIONS, Changed, Informer, KubeClient, Removed, WatchItem
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import make_namespace
from control_planes import control_plane, say_nothing
from service_processes import OperatorProcess

NAMESPACE: Final = "batch"
BEFORE_CHANGE: Final = timedelta(minutes=4)
DOWN_AFTER: Final = timedelta(minutes=1, seconds=20)
OVER_AFTER: Final = timedelta(minutes=6)
"""Both after the change of the clock."""
WANTED_SECONDS: Final = 5.0
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)
TWO: Final = timedelta(hours=2)
FORWARD, BACK, MIDNIGHT = "Test/Forward", "Test/Back", "Test/Midnight"


def write_zones(folder: Path, change: datetime) -> None:
    """Write zones whose clock reads two and is put to three, reads three and is put to two, and reads midnight."""
    of_day = timedelta(hours=change.hour, minutes=change.minute)
    for name, before, after in (
        (FORWARD, TWO - of_day, TWO + HOUR - of_day),
        (BACK, TWO + HOUR - of_day, TWO - of_day),
        (MIDNIGHT, -of_day, -of_day),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        head = struct.pack(">4s16x6l", b"TZif", 0, 0, 0, 1, 2, 4)
        times = struct.pack(">lB", int(change.timestamp()), 1)
        kinds = b"".join(struct.pack(">lBB", int(one.total_seconds()), 0, 0) for one in (before, after))
        path.write_bytes(head + times + kinds + b"TST\0")


@dataclass(frozen=True)
class Window:
    """A window, and when it opens and closes."""

    spec: dict[str, Any]
    reserve_at: datetime
    end: datetime
    opens: bool = True


@dataclass
class Seen:
    """What a watch saw."""

    windows: dict[str, str] = field(default_factory=dict)
    """The window of each Reservation."""
    opened: dict[str, datetime] = field(default_factory=dict)
    held: dict[str, datetime] = field(default_factory=dict)
    closed: dict[str, datetime] = field(default_factory=dict)
    free: dict[str, datetime] = field(default_factory=dict)
    """By Reservation: when its placeholder was gone."""
    failures: list[BerthError] = field(default_factory=list)

    def note_reservation(self, item: WatchItem[Any]) -> None:
        if not isinstance(item, Changed):
            return
        one = Reservation.read(item.item)
        name = one.metadata.name
        self.windows[name] = one.metadata.labels.get(WINDOW_LABEL, "")
        self.opened.setdefault(name, datetime.now(UTC))
        if any(slot.state is SlotState.HELD for slot in one.status.slots):
            self.held.setdefault(name, datetime.now(UTC))
        if one.phase.terminal:
            self.closed.setdefault(name, datetime.now(UTC))

    def note_placeholder(self, item: WatchItem[Pod]) -> None:
        if isinstance(item, Removed):
            name = item.item.metadata.annotations.get(RESERVATION_NAME_ANNOTATION, "").partition("/")[2]
            self.free[name] = datetime.now(UTC)

    @contextmanager
    def watching(self, client: KubeClient) -> Iterator[None]:
        places = {"resource": PODS, "namespace": DEFAULT_NAMESPACE, "label_selector": PLACEHOLDER_LABEL, "type": Pod}
        found = {"resource": RESERVATIONS, "namespace": NAMESPACE}
        with (
            Informer("places", lambda stop: client.watch(stop=stop, **places), self.note_placeholder, self._fail),
            Informer("opened", lambda stop: client.watch(stop=stop, **found), self.note_reservation, self._fail),
        ):
            yield

    def _fail(self, error: BerthError) -> None:
        self.failures.append(error)


class OperatorInZones(OperatorProcess):
    """An operator that knows more time zones."""

    def __init__(self, sandbox: Sandbox, folder: Path, zones: Path) -> None:
        super().__init__(sandbox, folder, "--limit=slots=none,share=none,maxFencedNodes=none")
        path = ":".join((str(zones), *zoneinfo.TZPATH))
        self._command = ("env", f"PYTHONTZPATH={path}", *self._command)


def draw(chance: random.Random, number: int, change: datetime) -> Window:
    """Return a window of one of the kinds; starts are whole minutes, as cron has them."""
    minute, kind = chance.randrange(1, 5), number % 10
    if kind == 8:
        times = {"schedule": f"{minute} 1 - 3 * * *", "timeZone": FORWARD}
        return Window(times, change - HOUR, change + minute * MINUTE)
    ago, length = timedelta(seconds=chance.randrange(90)), timedelta(seconds=chance.randrange(30, 90))
    start = change + chance.randrange(-2, 4) * MINUTE
    zone, local = MIDNIGHT, start - change
    if kind == 9:
        zone, start = BACK, change + minute * MINUTE
        local = TWO + minute * MINUTE
    elif kind >= 4:
        zone, local = FORWARD, start - change + (TWO if start < change else TWO + HOUR)
        if chance.random() < 0.8:
            start, local = change, TWO + chance.randrange(60) * MINUTE
    of_day = datetime.min.replace(tzinfo=UTC, year=2000) + local
    times = {
        "schedule": f"{of_day.minute} {of_day.hour} * * *",
        "timeZone": zone,
        "duration": f"{int(length.total_seconds())}s",
        "startReserveAgo": f"{int(ago.total_seconds())}s",
    }
    return Window(times, start - ago, start + length, opens=zone != BACK)


def create(client: KubeClient, name: str, window: Window) -> None:
    spec = {**window.spec, "podNumToReserve": 1, "resources": {"cpu": "100m", "memory": "64Mi"}}
    head = {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "metadata": {"name": name}}
    client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=NAMESPACE)


@dataclass(frozen=True)
class Run:
    """What was measured: the windows, when all of them existed, and when the operator was away."""

    windows: dict[str, Window]
    seen: Seen
    existed: datetime
    down: datetime
    up: datetime

    def report(self) -> bool:
        """Print how late each kind of change was; return whether all came in time."""
        names = {window: reservation for reservation, window in self.seen.windows.items()}
        wanted = {name for name, window in self.windows.items() if window.opens}
        in_time = names.keys() == wanted and len(self.seen.windows) == len(wanted)
        made = f"{len(self.seen.windows)} Reservations"
        print(
            f"{len(wanted & names.keys())} of {len(wanted)} windows opened, {len(names.keys() - wanted)} others, {made}"
        )
        for what, found, due in (
            ("opened", self.seen.opened, "reserve_at"),
            ("places held", self.seen.held, "reserve_at"),
            ("closed", self.seen.closed, "end"),
            ("places given back", self.seen.free, "end"),
        ):
            for_away: dict[bool, list[float]] = {False: [], True: []}
            missing = 0
            for window, times in self.windows.items():
                at: datetime = getattr(times, due)
                if at < self.existed or not times.opens:
                    continue
                is_away = self.down - SECOND <= at < self.up
                if (moment := found.get(names.get(window, ""))) is None:
                    missing += 1
                    continue
                for_away[is_away].append((moment - (self.up if is_away else at)).total_seconds())
            for is_away, late in for_away.items():
                in_time &= all(abs(one) <= WANTED_SECONDS for one in late)
                print(f"{what}, {'while it was away' if is_away else 'as it ran'}: {_spread(late)}")
            in_time &= not missing
            if missing:
                print(f"{what}: {missing} never")
        return in_time


def _spread(late: list[float]) -> str:
    if not late:
        return "none"
    late.sort()
    return f"{len(late)}, first {late[0]:.2f} s, p50 {late[len(late) // 2]:.2f} s, last {late[-1]:.2f} s after its time"


def measure(options: argparse.Namespace, folder: Path, zones: Path) -> Run:
    chance = random.Random(options.seed)  # noqa: S311 - no secret
    with control_plane(SandboxSettings(nodes=0), progress=say_nothing) as sandbox, sandbox.connect() as client:
        sandbox.add_nodes(1, NodeShape(cpu="64", memory="256Gi", pods=500))
        make_namespace(client, NAMESPACE)
        change = (datetime.now(UTC) + BEFORE_CHANGE + MINUTE).replace(second=0, microsecond=0)
        write_zones(zones, change)
        windows = {f"window-{number}": draw(chance, number, change) for number in range(options.windows)}
        seen = Seen()
        with OperatorInZones(sandbox, folder, zones) as operator, seen.watching(client):
            for name, window in windows.items():
                create(client, name, window)
            existed = datetime.now(UTC)
            print(f"all windows exist {(change - existed).total_seconds():.0f} s before the clock changes")
            _sleep_until(change + DOWN_AFTER)
            down = datetime.now(UTC)
            operator.kill()
            _sleep_until(down + timedelta(seconds=options.down))
            operator.start()
            up = datetime.now(UTC)
            _sleep_until(change + OVER_AFTER)
        assert not seen.failures, seen.failures
    return Run(windows, seen, existed, down, up)


def _sleep_until(moment: datetime) -> None:
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--down", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.logs or Path(name)
        folder.mkdir(exist_ok=True, parents=True)
        zones = Path(name) / "zones"
        run = measure(options, folder, zones)
    print(f"away for {(run.up - run.down).total_seconds():.0f} s, until it led again")
    return 0 if run.report() else 1


if __name__ == "__main__":
    sys.exit(main())
