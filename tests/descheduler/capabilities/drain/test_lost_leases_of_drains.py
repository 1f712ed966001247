"""A drain that loses its Lease tries for it again and goes on with its plan."""

import pytest

from berth_descheduler.capabilities.drain.cli import command
from berth_descheduler.cli.main import run as berth
from cut_off_cycles import cut_off_first_cycle, phases
from descheduler.fake_cluster import fragmented_cluster


def test_the_drain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fragmented_cluster()
    cut_off_first_cycle(command, cluster, monkeypatch)

    assert berth(["drain", "low-1", "low-2", "--moves=Evict", "--pending-wait=0s"]) == 0
    assert set(phases(cluster)) == {"Succeeded"}
