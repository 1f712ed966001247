"""kopf is told to write nothing and to outlast any outage of the API server."""

from itertools import islice

import kopf

from berth_operator.handlers import configure


def test_kopf_never_gives_up_on_an_api_server_that_is_away() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    waits = settings.networking.error_backoffs
    assert not isinstance(waits, float)
    for _ in range(2):
        assert list(islice(waits, 1000))[-1] == 5


def test_kopf_writes_nothing() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.posting.enabled is False
    assert settings.scanning.disabled is True
