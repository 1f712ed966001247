from typing import Any

import pytest

from berth_core.errors import InputError
from berth_sandbox.settings import KUBERNETES_VARIABLE, SandboxSettings

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name with a blank": ({"name": "a b"}, "name"),
    "a name that leaves its folder": ({"name": "../x"}, "name"),
    "an empty name": ({"name": ""}, "name"),
    "a name that is too long": ({"name": "x" * 41}, "name"),
    "fewer nodes than none": ({"nodes": -1}, "nodes"),
    "no room for a single pod": ({"node_pods": 0}, "node pods"),
    "Leases that expire before they are renewed": ({"lease_seconds": 39}, "lease seconds"),
    "a cpu that is no quantity": ({"node_cpu": "many"}, "node cpu"),
    "no memory": ({"node_memory": "0"}, "node memory"),
    "a Kubernetes that the sandbox cannot build": ({"kubernetes": "1.30"}, "kubernetes"),
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


def test_the_variable_says_which_kubernetes_those_get_that_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KUBERNETES_VARIABLE, "")
    assert SandboxSettings().kubernetes == "1.36"
    monkeypatch.setenv(KUBERNETES_VARIABLE, "1.33")
    assert SandboxSettings().kubernetes == "1.33"
    assert SandboxSettings(kubernetes="1.35").kubernetes == "1.35"
    monkeypatch.setenv(KUBERNETES_VARIABLE, "newest")
    with pytest.raises(InputError, match=r"kubernetes is 'newest'; expected one of 1\.31, .*1\.36, 1\.37"):
        SandboxSettings()
