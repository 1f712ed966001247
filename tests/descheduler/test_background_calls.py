"""Calls in threads whose answers are taken in one: also at the end, when an answer asks for another call."""

from berth_descheduler.migration.background_calls import BackgroundCalls


def test_a_call_that_follows_the_last_answer_is_made_as_well() -> None:
    calls = BackgroundCalls(1, lambda: None)
    answers: list[str] = []

    def announce(answer: str) -> None:
        answers.append(answer)
        calls.make(lambda: "announced", answers.append)

    calls.make(lambda: "evicted", announce)
    calls.close()

    assert answers == ["evicted", "announced"]
