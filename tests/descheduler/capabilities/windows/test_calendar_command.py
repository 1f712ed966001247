"""`berth calendar` lists what windows do in the next day, in order, with what is held now."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from rich.console import Console

from berth_core import ActiveOccurrence, Occurrence, ReservationWindow, ReservationWindowStatus, WindowSchedule
from berth_descheduler.capabilities.windows.calendar import describe_calendar
from berth_descheduler.capabilities.windows.cli import command
from berth_descheduler.capabilities.windows.cli.command import _render
from berth_descheduler.cli.main import run
from berth_kube import RESERVATION_WINDOWS
from descheduler.fake_cluster import FakeCluster
from window_simulation import window_body

NOW: Final = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)


def window(name: str = "nightly", *active: ActiveOccurrence, **spec: Any) -> ReservationWindow:  # noqa: ANN401 - a field
    read = ReservationWindow.read(window_body(name, **spec))
    return ReservationWindow(metadata=read.metadata, spec=read.spec, status=ReservationWindowStatus(active=active))


def described_for_machines(*windows: ReservationWindow) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(describe_calendar(windows, NOW))
    return described


def changes(*windows: ReservationWindow) -> list[tuple[str, str, str]]:
    return [(one["time"], one["what"], one["window"]) for one in described_for_machines(*windows)["items"]]


def test_what_is_under_way_and_what_comes_is_listed_in_order() -> None:
    held = ActiveOccurrence(
        reservation="nightly-1",
        start="2026-11-22T03:00:00Z",
        end="2026-11-22T04:00:00Z",
        nodes=("node-a",),
        desired=10,
        held=7,
        taken=2,
    )
    noon = window("noon", schedule="0 12 * * *", duration="30m", startReserveAgo="0s")
    described = described_for_machines(noon, window("nightly", held))
    assert [(one["time"], one["what"], one["window"], one["held"]) for one in described["items"]] == [
        ("2026-11-22T03:00:00Z", "opens", "batch/nightly", 7),
        ("2026-11-22T04:00:00Z", "closes", "batch/nightly", 7),
        ("2026-11-22T12:00:00Z", "opens", "batch/noon", 0),
        ("2026-11-22T12:30:00Z", "closes", "batch/noon", 0),
        ("2026-11-23T01:00:00Z", "reserves", "batch/nightly", 0),
    ]
    assert described["items"][0] | {"time": ""} == {
        "time": "",
        "what": "opens",
        "window": "batch/nightly",
        "start": "2026-11-22T03:00:00Z",
        "end": "2026-11-22T04:00:00Z",
        "pods": 10,
        "nodeSelector": {},
        "reservation": "nightly-1",
        "nodes": ("node-a",),
        "held": 7,
        "taken": 2,
        "expectedAt": None,
        "resources": {"cpu": "32", "memory": "64Gi"},
    }
    assert (described["from"], described["until"]) == ("2026-11-22T02:00:00Z", "2026-11-23T02:00:00Z")


def test_a_window_that_is_switched_off_is_not_listed() -> None:
    assert not changes(window(suspend=True))


def test_what_many_windows_do_is_cut_at_a_time_before_which_it_is_complete() -> None:
    often = [
        window(f"often-{number}", schedule="* * * * *", duration="1m", startReserveAgo="30s") for number in range(12)
    ]
    late = window("late", schedule="30 2 * * *", duration="10m", startReserveAgo="5m")
    described = described_for_machines(*often, late, window("bad", schedule="never"))
    assert 1_500 <= len(described["items"]) <= 2_000
    assert "2026-11-22T02:40:00Z" < described["until"] < "2026-11-22T04:00:00Z"
    assert [entry["what"] for entry in described["items"] if entry["window"] == "batch/late"] == [
        "reserves",
        "opens",
        "closes",
    ]
    assert all(entry["time"] < described["until"] for entry in described["items"])
    assert [problem["window"] for problem in described["problems"]] == ["batch/bad"]

    alone = described_for_machines(often[0])["items"]
    want = [entry for entry in alone if entry["time"] < described["until"]]
    assert [entry for entry in described["items"] if entry["window"] == "batch/often-0"] == want
    assert len(want) > 10


def test_of_very_many_windows_few_occurrences_are_computed_and_none_before_until_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[datetime] = []
    next_after = WindowSchedule.next_after

    def counted(schedule: WindowSchedule, moment: datetime) -> Occurrence:
        computed.append(moment)
        return next_after(schedule, moment)

    monkeypatch.setattr(WindowSchedule, "next_after", counted)
    often = [
        window(f"often-{number}", schedule="* * * * *", duration="1m", startReserveAgo="0s") for number in range(400)
    ]
    described = described_for_machines(*often)
    assert len(computed) <= 2_000 + 400
    assert "2026-11-22T02:02:00Z" <= described["until"] < "2026-11-22T02:10:00Z"
    listed = [(entry["time"], entry["what"]) for entry in described["items"] if entry["window"] == "batch/often-0"]
    alone = [(time, what) for time, what, _ in changes(often[0]) if time < described["until"]]
    assert listed == alone != []


def test_a_window_that_overlaps_itself_too_often_is_named() -> None:
    described = described_for_machines(window("deep", schedule="* * * * *", duration="20h"), window("nightly"))
    (problem,) = described["problems"]
    assert problem["window"] == "batch/deep"
    assert "schedule is such that more than" in problem["problem"]
    assert {entry["window"] for entry in described["items"]} == {"batch/nightly"}


def test_a_window_that_comes_every_minute_is_cut() -> None:
    found = changes(window(schedule="* * * * *", duration="30s", startReserveAgo="0s"))
    assert 500 <= len(found) <= 1_002


@pytest.mark.parametrize(
    "spec", [{"timeZone": "Europe/Nowhere"}, {"template": {"spec": 1}}], ids=["a zone that is none", "unreadable"]
)
def test_a_window_that_cannot_open_is_named(spec: dict[str, Any]) -> None:
    described = described_for_machines(window(**spec), window("other"))
    assert [one["window"] for one in described["problems"]] == ["batch/nightly"]
    assert {one["window"] for one in described["items"]} == {"batch/other"}


def test_windows_are_chosen_as_kubectl_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    for name, namespace, team in (("nightly", "ml", "a"), ("noon", "ml", "b"), ("weekly", "shop", "a")):
        body = window_body(name)
        body["metadata"].update(namespace=namespace, labels={"team": team})
        cluster.add(RESERVATION_WINDOWS, body)
    monkeypatch.setattr(command, "connect", lambda **_: cluster)

    def names(*options: str) -> list[str]:
        assert run(["calendar", "-o", "name", *options]) == 0
        return [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]

    assert names() == names("-A") == ["nightly", "noon", "weekly"]
    assert names("-n", "ml") == ["nightly", "noon"]
    assert names("-l", "team=a") == ["nightly", "weekly"]
    assert names("-n", "ml", "-l", "team=a") == ["nightly"]


def printed(*windows: ReservationWindow) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(_render(described_for_machines(*windows)))
    return capture.get()


def test_people_read_a_line_for_each_change() -> None:
    text = printed(window(nodeSelector={"business_type": "ebook"}), window("bad", timeZone="Europe/Nowhere"))
    lines = [line.split() for line in text.splitlines()]
    assert lines[1][:4] == ["2026-11-22T03:00:00Z", "1h", "batch/nightly", "opens"]
    assert "of business_type=ebook" in text
    assert "timeZone is 'Europe/Nowhere'" in text
    assert "Nothing opens or closes" in printed()
