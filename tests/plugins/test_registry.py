"""How plugins are found: by entry points, imported when used, and blamed by the distribution that brings them."""

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest

from berth_core.errors import InputError
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from berth_descheduler.plugins.defragmentation import Defragmentation
from berth_descheduler.plugins.registry import ENTRY_POINT_GROUP, OWN_PLUGINS, PluginRegistry, installed_plugins

MODULE = '''
from collections.abc import Mapping
from typing import Any

from berth_core.errors import InputError


class Good:
    def __init__(self, least: int) -> None:
        self.least = least

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "Good":
        if "most" in args:
            raise InputError("most", args["most"], "nothing")
        return cls(args["least"])


class Unreadable:
    """Has nothing to read arguments with."""
'''


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder of modules that can be imported until the end of the test."""
    (tmp_path / "some_plugins.py").write_text(MODULE)
    (tmp_path / "broken_plugins.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("some_plugins", "broken_plugins"):
        sys.modules.pop(name, None)


def brought_by(folder: Path, distribution: str, **plugins: str) -> list[EntryPoint]:
    """The entry points of a distribution as it would be installed."""
    info = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    lines = [f"{name} = {target}" for name, target in plugins.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *lines, ""]))
    return list(Distribution.at(info).entry_points)


def registry(folder: Path) -> PluginRegistry:
    found = [
        *brought_by(folder, "some-plugins", Good="some_plugins:Good", Twice="some_plugins:Good"),
        *brought_by(folder, "other-plugins", Twice="some_plugins:Good", DefaultEvictor="some_plugins:Good"),
        *brought_by(
            folder,
            "bad-plugins",
            Broken="broken_plugins:Good",
            Missing="some_plugins:Better",
            Unreadable="some_plugins:Unreadable",
        ),
    ]
    return PluginRegistry.discover(OWN_PLUGINS, found)


def refused(found: PluginRegistry, name: str, args: dict[str, object]) -> InputError:
    with pytest.raises(InputError) as raised:
        found.make(name, args)
    return raised.value


def test_the_plugins_that_come_with_berth_are_there() -> None:
    found = installed_plugins()

    assert {"DefaultEvictor", "Defragmentation"} <= set(found.names)
    assert isinstance(found.make("DefaultEvictor", {}), DefaultEvictor)
    assert isinstance(found.make("Defragmentation", {}), Defragmentation)


def test_a_plugin_of_another_distribution_is_made_with_its_arguments(modules: Path) -> None:
    made = registry(modules).make("Good", {"least": 3})

    assert type(made).__name__ == "Good"
    assert vars(made) == {"least": 3}


def test_nothing_is_imported_before_it_is_used(modules: Path) -> None:
    found = registry(modules)

    of_others = {"Broken", "Good", "Missing", "Twice", "Unreadable"}
    assert found.names == tuple(sorted({*OWN_PLUGINS, *of_others}))
    assert not {"some_plugins", "broken_plugins"} & set(sys.modules)


def test_a_plugin_that_cannot_be_loaded_breaks_only_who_uses_it(modules: Path) -> None:
    found = registry(modules)

    error = refused(found, "Broken", {})
    assert (error.field, error.value) == ("name", "Broken")
    assert error.expected == (
        "a plugin that can be loaded: ModuleNotFoundError in bad-plugins 1.2: "
        "No module named 'a_package_that_is_not_there'"
    )
    assert "AttributeError in bad-plugins 1.2" in refused(found, "Missing", {}).expected
    assert "AttributeError in bad-plugins 1.2" in refused(found, "Unreadable", {}).expected
    assert isinstance(found.make("Defragmentation", {}), Defragmentation)


def test_a_name_that_two_distributions_bring_is_nobodys(modules: Path) -> None:
    found = registry(modules)

    error = refused(found, "Twice", {})
    assert error.field == "name"
    assert error.expected == "a name that one distribution brings, not other-plugins 1.2 and some-plugins 1.2"
    assert "berth and other-plugins 1.2" in refused(found, "DefaultEvictor", {}).expected


def test_a_name_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    error = refused(PluginRegistry.discover(OWN_PLUGINS, []), "LowNodeUtilization", {})
    assert str(error) == (
        f"name is 'LowNodeUtilization'; expected one of the plugins there are: {', '.join(sorted(OWN_PLUGINS))}"
    )


def test_an_argument_that_is_wrong_is_named_within_the_arguments(modules: Path) -> None:
    found = registry(modules)

    assert refused(found, "Good", {"most": 5}).field == "args.most"
    assert refused(found, "Defragmentation", {"lowThresholds": {"cpu": 200}}).field == "args.lowThresholds.cpu"


def test_a_plugin_that_fails_over_its_arguments_is_blamed(modules: Path) -> None:
    error = refused(registry(modules), "Good", {})

    assert error.field == "args"
    assert error.expected == "what the plugin reads: KeyError in some-plugins 1.2: 'least'"
