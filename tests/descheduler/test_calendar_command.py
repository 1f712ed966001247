"""`berth calendar` lists what windows do in the next day, in order, with what is held now."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from rich.console import Console

from berth_core import ActiveOccurrence, ReservationWindow, ReservationWindowStatus
from berth_descheduler.cli import calendar
from berth_descheduler.cli.calendar import _render
from berth_descheduler.cli.main import run
from berth_descheduler.report import describe_calendar
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
    monkeypatch.setattr(calendar, "connect", lambda **_: cluster)

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
