"""What a profile may say, in the shape that users of the upstream descheduler know, and what is said of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from berth_core import Pod
from berth_core.errors import InputError
from berth_core.migration_plans import Objective
from berth_core.selector_texts import format_selector
from berth_descheduler.framework.interfaces import Candidate, ClusterView, PodFilter
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from berth_descheduler.plugins.defragmentation import Defragmentation, NoBalance, settings_with
from berth_descheduler.plugins.registry import OWN_PLUGINS, PluginRegistry, default_settings
from berth_descheduler.policy.lint import lint_document
from berth_descheduler.policy.profiles import ProfilePlugins, read_profile
from berth_descheduler.report.documents import describe_settings


class Naming:
    """A deschedule plugin and a filter in one."""

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "Naming":
        if set(args) - {"names"}:
            raise InputError("names", args, "names alone")
        return cls()

    def deschedule(self, _view: ClusterView) -> Iterable[Candidate]:
        return ()

    def filter(self, _view: ClusterView) -> PodFilter:
        def objections(_pod: Pod) -> tuple[str, ...]:
            return ()

        return objections


class Tidying:
    """A balance plugin."""

    objective = Objective(plugin="Tidying", strategy="Tidy", args={"tidyFirst": "large"})

    @classmethod
    def parse(cls, _args: Mapping[str, Any]) -> "Tidying":
        return cls()

    def strategy(self, _deadline: Any) -> Any:  # noqa: ANN401 - not asked here
        raise NotImplementedError


REGISTRY = PluginRegistry.discover({**OWN_PLUGINS, "Naming": Naming, "Tidying": Tidying}, [])


def read(raw: Mapping[str, Any]) -> ProfilePlugins:
    return read_profile({"name": "p", **raw}, REGISTRY)


def enabled(**kinds: list[str]) -> dict[str, Any]:
    return {kind: {"enabled": names} for kind, names in kinds.items()}


def names(found: Iterable[Any]) -> list[str]:
    return [one.name for one in found]


def test_a_profile_of_upstreams_shape_is_read_as_it_is() -> None:
    found = read(
        {
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": {"nodeFit": True, "minReplicas": 2, "nodeSelector": "pool=batch"}},
                {"name": "Defragmentation", "args": {"strategy": "Consolidate", "resourceType": "memory"}},
            ],
            "plugins": {
                "balance": {"enabled": ["Defragmentation"]},
                "filter": {"enabled": ["DefaultEvictor"]},
                "preEvictionFilter": {"enabled": ["DefaultEvictor"]},
            },
        }
    )

    assert found.plugins.balance.name == "Defragmentation"
    assert found.plugins.balance.plugin.objective.strategy == "Consolidate"
    assert names(found.plugins.filters) == names(found.plugins.pre_eviction_filters) == ["DefaultEvictor"]
    (evictor,) = found.plugins.filters
    assert isinstance(evictor.plugin, DefaultEvictor)
    assert evictor.plugin.args.min_replicas == 2
    assert found.plugins.node_selector is not None
    assert format_selector(found.plugins.node_selector) == "pool in (batch)"
    assert found.warnings == ()


def test_the_default_evictor_is_there_unless_it_is_disabled() -> None:
    with_another = read({"plugins": enabled(balance=["Defragmentation"], filter=["Naming"])})
    assert names(with_another.plugins.filters) == ["Naming", "DefaultEvictor"]
    for off in (["DefaultEvictor"], ["*"]):
        without = read(
            {"plugins": {**enabled(balance=["Defragmentation"]), "filter": {"enabled": ["Naming"], "disabled": off}}}
        )
        assert names(without.plugins.filters) == ["Naming"]
        assert names(without.plugins.pre_eviction_filters) == ["DefaultEvictor"]


def test_single_pods_alone_may_be_what_a_profile_is_for() -> None:
    found = read({"plugins": enabled(deschedule=["Naming"])})

    assert names(found.plugins.deschedule) == ["Naming"]
    assert found.plugins.balance.plugin == NoBalance(("Naming",))
    objective = found.plugins.balance.plugin.objective
    assert (objective.plugin, objective.strategy) == ("Naming", "SinglePods")


def test_another_balance_plugin_takes_the_place_of_ours() -> None:
    found = read({"plugins": enabled(balance=["Tidying"])})
    assert found.plugins.balance.plugin.objective.strategy == "Tidy"


def test_the_settings_of_a_plan_show_the_arguments_of_its_own_balance_plugin() -> None:
    ours, theirs = (
        describe_settings(settings_with(default_settings(), read({"plugins": enabled(balance=[name])}).plugins))
        for name in ("Defragmentation", "Tidying")
    )
    assert theirs["tidyFirst"] == "large"
    assert theirs.keys() - {"tidyFirst"} == ours.keys() - Defragmentation.parse({}).objective.args.keys()


@pytest.mark.parametrize(("name", "want"), [("Defragmentation", ["spec.limits.minFreedNodes"]), ("Tidying", [])])
def test_lint_warns_of_the_least_freed_nodes_only_where_it_knows_the_plugin(name: str, want: list[str]) -> None:
    profile = {"name": "p", "plugins": enabled(balance=[name])}
    limits = {"maxMoves": 9, "minFreedNodes": 2, "nodeCoolDown": "1h"}
    policy = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "p"},
        "spec": {"mode": "Plan", "profiles": [profile], "limits": limits},
    }
    (found,) = lint_document(policy, REGISTRY)
    assert [one.field for one in found.findings] == want


def test_a_plugin_that_is_enabled_twice_is_one_object() -> None:
    found = read({"plugins": enabled(deschedule=["Naming"], filter=["Naming"])})
    assert id(found.plugins.deschedule[0].plugin) == id(found.plugins.filters[0].plugin)


def test_what_does_not_do_what_its_writer_may_expect_is_warned_of() -> None:
    found = read(
        {
            "pluginConfig": [{"name": "DefaultEvictor", "args": {"nodeFit": False}}, {"name": "Naming"}],
            "plugins": enabled(balance=["Defragmentation"]),
        }
    )
    assert found.warnings == (
        "pluginConfig[1]: Naming has arguments and is not enabled",
        "pluginConfig[0].args.nodeFit: a pod is moved only to a node that fits it, whatever is said here",
    )


@dataclass(frozen=True)
class Bad:
    """A profile, and what is said of it."""

    raw: dict[str, Any]
    want_field: str
    want_said: str


BALANCE = enabled(balance=["Defragmentation"])
BAD = {
    "nothing that moves pods": Bad({}, "plugins", "a plugin under balance or deschedule"),
    "a plugin that there is not, and others": Bad(
        {"plugins": enabled(balance=["RemoveDuplicates"], deschedule=["PodLifeTime", "RemoveFailedPods"])},
        "plugins.deschedule.enabled[0]",
        "not there either: RemoveDuplicates, RemoveFailedPods",
    ),
    "arguments of a plugin that there is not": Bad(
        {"plugins": BALANCE, "pluginConfig": [{"name": "PodLifeTime"}]}, "pluginConfig[0].name", "one of the plugins"
    ),
    "a plugin where it is of no use": Bad(
        {"plugins": enabled(balance=["DefaultEvictor"])},
        "plugins.balance.enabled[0]",
        "a plugin with strategy and objective, which this one of berth has not",
    ),
    "a filter without a last word": Bad(
        {"plugins": {**BALANCE, "preEvictionFilter": {"enabled": ["Naming"]}}},
        "plugins.preEvictionFilter.enabled[0]",
        "a plugin with pre_eviction_filter",
    ),
    "two that choose for the whole": Bad(
        {"plugins": enabled(balance=["Defragmentation", "Tidying"])},
        "plugins.balance.enabled[1]",
        "one balance plugin in a profile, and Defragmentation is one",
    ),
    "a wrong argument": Bad(
        {
            "plugins": BALANCE,
            "pluginConfig": [{"name": "Naming"}, {"name": "Defragmentation", "args": {"lowThresholds": 5}}],
        },
        "pluginConfig[1].args.lowThresholds",
        "",
    ),
    "a wrong argument of a plugin that is not enabled": Bad(
        {"plugins": BALANCE, "pluginConfig": [{"name": "Naming", "args": {"who": 1}}]},
        "pluginConfig[0].args.names",
        "names alone",
    ),
    "arguments twice": Bad(
        {"plugins": BALANCE, "pluginConfig": [{"name": "Naming"}, {"name": "Naming"}]},
        "pluginConfig[1].name",
        "each plugin once; pluginConfig[0] is about it, too",
    ),
    "enabled twice": Bad(
        {"plugins": enabled(deschedule=["Naming", "Naming"])}, "plugins.deschedule.enabled[1]", "each plugin once"
    ),
    "enabled and disabled": Bad(
        {"plugins": {"balance": {"enabled": ["Defragmentation"], "disabled": ["Defragmentation"]}}},
        "plugins.balance.enabled[0]",
        "a plugin that is not disabled as well",
    ),
    "a place that there is not": Bad(
        {"plugins": {**BALANCE, "sort": {"enabled": ["A"]}}}, "plugins.sort", "nothing here but balance, deschedule"
    ),
    "names that are no list": Bad(
        {"plugins": {"balance": {"enabled": "Defragmentation"}}}, "plugins.balance.enabled", "a list"
    ),
    "a name that is none": Bad({"plugins": enabled(balance=[3])}, "plugins.balance.enabled[0]", "the name of a plugin"),  # type: ignore[list-item]
    "plugins that are no mapping": Bad({"plugins": ["Defragmentation"]}, "plugins", "a mapping with"),
    "arguments that are no mapping": Bad(
        {"plugins": BALANCE, "pluginConfig": [{"name": "Naming", "args": ["a"]}]}, "pluginConfig[0].args", "a mapping"
    ),
    "a field beside name and args": Bad(
        {"plugins": BALANCE, "pluginConfig": [{"name": "Naming", "arg": {}}]},
        "pluginConfig[0].arg",
        "nothing here but args, name",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_what_is_wrong_with_a_profile_is_named_by_its_path(case: Bad) -> None:
    with pytest.raises(InputError) as raised:
        read(case.raw)

    assert raised.value.field == case.want_field
    assert case.want_said in raised.value.expected


def test_one_plugin_that_there_is_not_is_answered_with_those_that_there_are_alone() -> None:
    with pytest.raises(InputError) as raised:
        read({"plugins": BALANCE, "pluginConfig": [{"name": "PodLifeTime"}]})

    assert raised.value.expected.startswith("one of the plugins there are: DefaultEvictor, Defragmentation")
    assert ";" not in raised.value.expected
