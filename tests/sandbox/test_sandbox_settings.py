from typing import Any

import pytest

from berth_core.errors import InputError
from berth_sandbox.settings import SandboxSettings

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name with a blank": ({"name": "a b"}, "name"),
    "a name that leaves its folder": ({"name": "../x"}, "name"),
    "an empty name": ({"name": ""}, "name"),
    "a name that is too long": ({"name": "x" * 41}, "name"),
    "fewer nodes than none": ({"nodes": -1}, "nodes"),
    "no room for a single pod": ({"node_pods": 0}, "node pods"),
    "a cpu that is no quantity": ({"node_cpu": "many"}, "node cpu"),
    "no memory": ({"node_memory": "0"}, "node memory"),
    "negative memory": ({"node_memory": "-1Gi"}, "node memory"),
}


@pytest.mark.parametrize(("given", "want_field"), WRONG.values(), ids=WRONG.keys())
def test_settings_that_cannot_be_started_are_refused_by_name(given: dict[str, Any], want_field: str) -> None:
    with pytest.raises(InputError) as caught:
        SandboxSettings(**given)
    assert str(caught.value).startswith(want_field)


@pytest.mark.parametrize("name", [None, "a", "demo", "two-words", "x" * 40])
def test_names_that_can_stand_in_a_path_and_a_context_are_taken(name: str | None) -> None:
    assert SandboxSettings(name=name).name == name
