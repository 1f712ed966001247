"""The operator's clock is set forward and back: what has to end ends, and nothing is left."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from berth_core.reservations import ReservationPhase, ReservationReason
from berth_sandbox.sandbox import Sandbox
from fault_proxy import FaultProxy
from faults import FaultKind, HoldPlan
from handover_calls import deletes_the_placeholder
from proxied_operator import held, proxy, undisturbed
from reservation_stage import Stage, is_gated
from service_processes import OperatorProcess
from waiting import eventually

__all__ = ["proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

HOUR: Final = 3600.0


@dataclass(frozen=True)
class Hands:
    """Sets the operator's clock."""

    file: Path

    def shift(self, seconds: float) -> None:
        moved = self.file.with_suffix(".new")
        moved.write_text(str(seconds), encoding="ascii")
        moved.replace(self.file)


class ShiftedOperator(OperatorProcess):
    """An operator whose clock is set by a file."""

    def __init__(self, sandbox: Sandbox, folder: Path, *options: str) -> None:
        super().__init__(sandbox, folder, *options)
        script = Path(__file__).parents[1] / "support" / "shifted_operator.py"
        self._command = (sys.executable, str(script), *self._command[1:])


@pytest.fixture(scope="module")
def shifted(sandbox: Sandbox, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hands]:
    """Yield what sets the clock of an operator."""
    folder = tmp_path_factory.mktemp("shifted-operator")
    hands = Hands(folder / "shift")
    hands.shift(0)
    through = proxy.write_kubeconfig(folder / "through-the-proxy.yaml")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHIFT_FILE", str(hands.file))
        with ShiftedOperator(sandbox, folder, f"--kubeconfig={through}"):
            yield hands


@pytest.fixture
def hands(shifted: Hands) -> Iterator[Hands]:
    yield shifted
    shifted.shift(0)


def begin(stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()


def test_set_forward_what_is_due_by_it_expires_and_stays_so(hands: Hands, stage: Stage) -> None:
    begin(stage)
    hands.shift(HOUR)
    ended = stage.wait_for(ReservationPhase.FAILED, seconds=60)
    assert ended.status.state is not None
    assert ended.status.state.reason == ReservationReason.EXPIRED

    hands.shift(0)
    stage.wait_until_empty()
    assert stage.read().status.state == ended.status.state


def test_set_back_a_place_stays_held_and_is_handed_over(hands: Hands, stage: Stage) -> None:
    begin(stage)
    hands.shift(-HOUR)
    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    hands.shift(0)
    assert stage.pod("owner").spec.node_name == stage.nodes[0]


@pytest.mark.parametrize("seconds", [HOUR / 12, -HOUR], ids=["forward", "back"])
def test_a_hand_over_in_whose_middle_it_is_set_keeps_no_pod_back(
    hands: Hands, proxy: FaultProxy, stage: Stage, seconds: float
) -> None:
    begin(stage)
    with held(proxy, HoldPlan(deletes_the_placeholder, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        hands.shift(seconds)

    eventually("the pod runs", lambda: stage.pod("owner").status.phase == "Running", seconds=60)
    hands.shift(0)
    assert not is_gated(stage.pod("owner"))
    eventually("it is over", lambda: stage.read().phase.terminal, seconds=60)
    stage.wait_until_empty()
