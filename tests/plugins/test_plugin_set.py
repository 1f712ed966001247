"""How plugins are asked: all of their reasons count, and one that fails keeps pods where they are."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from berth_core import Pod
from berth_core.errors import InputError, RetryableError
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled, PluginError, PluginSet
from berth_descheduler.framework.interfaces import Candidate, ClusterView, Objection, PodFilter
from berth_descheduler.framework.refusals import Refusal
from berth_descheduler.framework.refusals import RefusalReason as Reason
from builders import pod
from planner_settings import plugin_set

VIEW = ClusterView.of(Snapshot())
ASKED = pod("web-0", node="node-a")


class Saying:
    """A filter that says the same of every pod, or raises it."""

    def __init__(self, said: Any) -> None:  # noqa: ANN401 - wrong things, too
        self._said = said

    def filter(self, _view: ClusterView) -> PodFilter:
        def objections(_pod: Pod) -> Iterable[Objection]:
            if isinstance(self._said, Exception):
                raise self._said
            said: Iterable[Objection] = self._said
            return said

        return objections


class Unready:
    """A filter that cannot be made."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def filter(self, _view: ClusterView) -> PodFilter:
        raise self._error


class Naming:
    """A deschedule plugin that names what it was given."""

    def __init__(self, named: Callable[[], Iterable[Any]]) -> None:
        self._named = named

    def deschedule(self, _view: ClusterView) -> Iterable[Any]:
        return self._named()


def filters(**plugins: Any) -> PluginSet:  # noqa: ANN401 - wrong things, too
    return plugin_set(filters=tuple(Enabled(name, plugin) for name, plugin in plugins.items()))


def test_every_reason_of_every_filter_counts_in_their_order() -> None:
    typed = Refusal(Reason.TOO_YOUNG, "it is new")
    asked = filters(First=Saying(["it is Friday", "it is late"]), Second=Saying(()), Third=Saying([typed]))

    assert asked.refusing(VIEW)(ASKED) == (
        Refusal(Reason.REFUSED_BY_PLUGIN, "First: it is Friday"),
        Refusal(Reason.REFUSED_BY_PLUGIN, "First: it is late"),
        typed,
    )


FAILING = {
    "one that raises": (Saying(KeyError("app")), "the plugin Bad failed: KeyError: 'app'"),
    "one that says a number": (
        Saying([3]),
        "the plugin Bad failed: TypeError: a reason is a sentence or a Refusal, not int",
    ),
    "one that says nothing that can be read": (
        Saying(3),
        "the plugin Bad failed: TypeError: 'int' object is not iterable",
    ),
    "one that cannot be made": (Unready(OSError("no file")), "the plugin Bad failed: OSError: no file"),
}


@pytest.mark.parametrize(("bad", "want"), FAILING.values(), ids=FAILING.keys())
def test_a_filter_that_fails_keeps_every_pod_beside_what_others_say(bad: Any, want: str) -> None:  # noqa: ANN401
    found = filters(Bad=bad, Good=Saying(["no"])).refusing(VIEW)(ASKED)

    assert found == (Refusal(Reason.PLUGIN_FAILED, want), Refusal(Reason.REFUSED_BY_PLUGIN, "Good: no"))


def test_arguments_that_do_not_fit_the_cluster_end_the_planning() -> None:
    with pytest.raises(InputError, match="no such class"):
        filters(Bad=Unready(InputError("class", "a", "b", said="no such class"))).refusing(VIEW)


def test_what_is_to_be_tried_again_is_no_answer() -> None:
    with pytest.raises(RetryableError):
        filters(Far=Saying(RetryableError("unreachable"))).refusing(VIEW)(ASKED)


def test_each_pod_is_named_once_by_who_names_it_first() -> None:
    one, other = Candidate("default", "a", "old"), Candidate("default", "b", "slow")
    again = Candidate("default", "a", "noisy")
    asked = plugin_set(
        deschedule=(Enabled("First", Naming(lambda: [one])), Enabled("Second", Naming(lambda: iter([again, other]))))
    )

    assert asked.candidates(VIEW) == (Enabled("First", one), Enabled("Second", other))


def raising() -> Iterable[Candidate]:
    yield Candidate("default", "a", "old")
    raise ValueError("lost my way")


@pytest.mark.parametrize(
    ("named", "want"),
    [
        (raising, "the plugin Bad failed: ValueError: lost my way"),
        (lambda: ["default/a"], "the plugin Bad named a str, not a Candidate"),
        (lambda: None, "the plugin Bad failed: TypeError: 'NoneType' object is not iterable"),
    ],
)
def test_half_of_what_a_plugin_names_is_not_moved(named: Callable[[], Iterable[Any]], want: str) -> None:
    with pytest.raises(PluginError) as raised:
        plugin_set(deschedule=(Enabled("Bad", Naming(named)),)).candidates(VIEW)
    assert str(raised.value) == want
