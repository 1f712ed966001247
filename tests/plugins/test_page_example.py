"""The plugin that the page on rules makes, and the profile that the page on plugins shows."""

from typing import Any

import yaml

from berth_core.snapshot import Snapshot
from berth_descheduler.framework import ClusterView, Refusal
from berth_descheduler.framework import RefusalReason as Reason
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.plugins.registry import PluginRegistry, installed_plugins
from berth_descheduler.policy.profiles import read_profile
from builders import namespace, pod
from conventions.pages import blocks, blocks_of
from conventions.tracked import ROOT
from planner_settings import plugin_set


def test_the_plugin_of_the_page_keeps_the_pods_of_a_release_before_their_eviction_as_well() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec("\n".join(blocks_of(ROOT / "descheduler" / "docs" / "plugins.md", "python")), names)  # noqa: S102 - our page
    registry = PluginRegistry.discover({"NewNodes": names["NewNodes"]}, [])
    plugin = registry.make("NewNodes", {"label": "example.com/new"})
    cluster = Snapshot(namespaces=(namespace("shop", labels={"example.com/release": "7"}), namespace("bank")))
    enabled: Any = (Enabled("NewNodes", plugin),)
    plugins = plugin_set(filters=enabled, pre_eviction_filters=enabled)
    for refusing in (plugins.refusing, plugins.refusing_eviction):
        ask = refusing(ClusterView.of(cluster))
        kept = Refusal(Reason.REFUSED_BY_PLUGIN, "NewNodes: a release is running")
        assert ask(pod("web", namespace="shop", node="a")) == (kept,)
        assert ask(pod("web", namespace="bank", node="a")) == ()


def test_the_profile_of_the_page_is_one() -> None:
    (text,) = (block for block in blocks("yaml") if block.startswith("profiles:") and "minReplicas" in block)
    (profile,) = yaml.safe_load(text)["profiles"]
    found = read_profile(profile, installed_plugins())
    assert found.warnings == ()
    assert found.plugins.balance.plugin.objective.strategy == "Consolidate"
