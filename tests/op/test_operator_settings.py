"""Settings that cannot work are refused when they are made, in a sentence that names them."""

from collections.abc import Callable

import pytest

from berth_core.errors import InputError
from berth_operator.settings import HandoverSettings, OperatorSettings, PlaceholderSettings, WebhookSettings

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a settling time that was measured to be unsafe": (lambda: HandoverSettings(settle_seconds=0.29), "settle_seconds"),
    "a hand-over that may take no time": (lambda: HandoverSettings(timeout_seconds=0), "timeout_seconds"),
    "a placeholder that ends with its Reservation": (
        lambda: PlaceholderSettings(deadline_margin_seconds=0),
        "deadline_margin_seconds",
    ),
    "a webhook that is not waited for": (lambda: WebhookSettings(timeout_seconds=0), "timeout_seconds"),
    "a webhook that is waited for too long": (lambda: WebhookSettings(timeout_seconds=31), "timeout_seconds"),
    "a lease of no length": (lambda: OperatorSettings(lease_seconds=0), "lease_seconds"),
    "no worker": (lambda: OperatorSettings(workers=0), "workers"),
    "sweeps without a pause": (lambda: OperatorSettings(sweep_seconds=0), "sweep_seconds"),
    "a negative retention": (lambda: OperatorSettings(retention_seconds=-1), "retention_seconds"),
}


@pytest.mark.parametrize(("make", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(make: Callable[[], object], want: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == want
    assert str(caught.value).startswith(f"{want} is ")


def test_the_defaults_work() -> None:
    settings = OperatorSettings()
    assert settings.handover.settle_seconds == 0.3
    assert settings.retention_seconds == 3600
