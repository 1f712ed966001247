"""When the windows of a namespace may begin their next Reservation."""

import pytest

from berth_operator.capabilities.windows.pace import OpeningPace
from builders import FakeClock


@pytest.mark.parametrize(
    ("most", "want_waits"), [(None, [0.0, 0.0, 0.0]), (2, [0.0, 0.0, 60.0]), (1, [0.0, 60.0, 60.0]), (0, [60.0] * 3)]
)
def test_a_namespace_begins_as_many_in_a_minute_as_it_may(most: int | None, want_waits: list[float]) -> None:
    pace = OpeningPace(FakeClock())
    assert [pace.begin("shop", most) for _ in want_waits] == want_waits
    assert pace.begin("other", 1) == 0.0
