"""Commands whose first cycle loses its Lease once its plan is carried out."""

from types import ModuleType
from typing import Any

import pytest

from berth_descheduler.cycle import Cycle
from berth_descheduler.migration.plans.loop import LeaseLostError
from berth_descheduler.outcome import Outcome
from berth_kube.resources import MIGRATION_PLANS
from descheduler.fake_cluster import FakeCluster


def cut_off_first_cycle(command: ModuleType, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a command's module run on the cluster in memory, and cut its first cycle off."""
    cycles: list[Cycle] = []

    class CutOff(Cycle):
        def run(self, request: Any = None) -> Outcome:  # noqa: ANN401 - of the base class
            cycles.append(self)
            outcome = super().run(request)
            if len(cycles) == 1:
                raise LeaseLostError("the lease was lost")
            return outcome

    monkeypatch.setattr(command, "Cycle", CutOff)
    monkeypatch.setattr(command, "connect", lambda **_: cluster)
    monkeypatch.setattr(command, "configure_logs", lambda *_, **__: None)


def phases(cluster: FakeCluster) -> list[str]:
    return [plan["status"]["phase"] for plan in cluster.raw(MIGRATION_PLANS)]
