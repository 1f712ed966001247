"""The plugin that the page on plugins shows as an example, taken from the page, used as it says."""

from typing import Any

import yaml

from berth_core.snapshot import Snapshot
from berth_descheduler.framework import ClusterView, Refusal
from berth_descheduler.framework import RefusalReason as Reason
from berth_descheduler.framework.interfaces import Enabled
from berth_descheduler.planner import plan
from berth_descheduler.plugins.registry import PluginRegistry, installed_plugins
from berth_descheduler.policy.profiles import read_profile
from builders import namespace, node, owner, pod
from conventions.pages import blocks
from planner.clusters import consolidating
from planner_settings import plugin_set, with_plugins


def example(name: str = "ReleaseFreeze") -> Any:  # noqa: ANN401 - a class that the page defines
    """A class of the page's examples."""
    (code,) = (code for code in blocks("python") if f"class {name}" in code)
    names: dict[str, Any] = {"__name__": __name__}
    exec(code, names)  # noqa: S102 - our own page
    return names[name]


def test_the_example_of_the_page_keeps_the_pods_of_a_release() -> None:
    registry = PluginRegistry.discover({"ReleaseFreeze": example()}, [])
    plugin = registry.make("ReleaseFreeze", {})
    cluster = Snapshot(namespaces=(namespace("shop", labels={"example.com/release": "7"}), namespace("bank")))
    enabled: Any = (Enabled("ReleaseFreeze", plugin),)
    plugins = plugin_set(filters=enabled, pre_eviction_filters=enabled)
    for refusing in (plugins.refusing, plugins.refusing_eviction):
        ask = refusing(ClusterView.of(cluster))
        kept = Refusal(Reason.REFUSED_BY_PLUGIN, "ReleaseFreeze: a release is running")
        assert ask(pod("web", namespace="shop", node="a")) == (kept,)
        assert ask(pod("web", namespace="bank", node="a")) == ()


def test_the_profile_of_the_page_is_one() -> None:
    (text,) = (block for block in blocks("yaml") if block.startswith("profiles:") and "minReplicas" in block)
    (profile,) = yaml.safe_load(text)["profiles"]
    found = read_profile(profile, installed_plugins())
    assert found.warnings == ()
    assert found.plugins.balance.plugin.objective.strategy == "Consolidate"


def test_the_rule_of_the_page_sends_pods_to_nodes_with_the_label() -> None:
    registry = PluginRegistry.discover({"PreferNewNodes": example("PreferNewNodes")}, [])
    enabled: Any = Enabled("PreferNewNodes", registry.make("PreferNewNodes", {}))
    new = node("b", cpu="8", labels={"example.com/generation": "new"})
    pods = tuple(pod(name, node=name, cpu="1", memory=None, controller=owner(name=name)) for name in "ab")
    settings = consolidating()

    made = plan(
        Snapshot(nodes=(node("a", cpu="8"), new), pods=pods),
        with_plugins(settings, filters=(*settings.plugins.filters, enabled)),
    )

    assert made.freed_nodes == ("a",)
