"""Waits are spread by a chance of their own: what a test or a user seeds is not drawn from beside them, in a thread."""

import random

from berth_kube.retries import Backoff


def test_a_wait_draws_nothing_from_what_others_have_seeded() -> None:
    before = random.getstate()
    assert Backoff().wait_seconds(3) >= 0
    assert random.getstate() == before
