"""The plugin that the page on plugins shows as an example, taken from the page, used as it says."""

from typing import Any

import yaml

from berth_core.snapshot import Snapshot
from berth_descheduler.framework import ClusterView, Refusal
from berth_descheduler.framework import RefusalReason as Reason
from berth_descheduler.framework.interfaces import Enabled
from berth_descheduler.plugins.registry import PluginRegistry, installed_plugins
from berth_descheduler.policy.profiles import read_profile
from builders import namespace, pod
from conventions.pages import blocks
from planner_settings import plugin_set


def page_code() -> str:
    """The page's example."""
    (code,) = blocks("python")
    return code


def example() -> Any:  # noqa: ANN401 - a class that the page defines
    """The class of the page's example."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(page_code(), names)  # noqa: S102 - our own page
    return names["ReleaseFreeze"]


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
    (text,) = (block for block in blocks("yaml") if block.startswith("profiles:"))
    (profile,) = yaml.safe_load(text)["profiles"]
    found = read_profile(profile, installed_plugins())
    assert found.warnings == ()
    assert found.plugins.balance.plugin.objective.strategy == "Consolidate"
