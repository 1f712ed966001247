from typing import Any, Final

import pytest
import yaml

from berth_core import names
from conventions.generate_copies import CHART

PROGRAMS: Final = ("operator", "descheduler")
EVERYTHING: Final = "*"


def rules(program: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load(
        (CHART / "files" / f"{program}-rules.yaml").read_text(encoding="utf-8")
    )
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_service_is_given_everything(program: str) -> None:
    assert set(rules(program)) == {"clusterRules", "namespaceRules"}
    for rule in (rule for part in rules(program).values() for rule in part):
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
        assert not [name for field in rule.values() for name in field if EVERYTHING in name]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_service_reads_secrets_it_does_not_own(program: str) -> None:
    secrets = [rule for part in rules(program).values() for rule in part if "secrets" in rule["resources"]]
    assert all(rule["verbs"] == ["create"] or rule["resourceNames"] == [names.WEBHOOK_SECRET] for rule in secrets)
    assert not [rule for rule in rules(program)["clusterRules"] if rule in secrets]


def test_only_the_operator_writes_the_status_of_reservations() -> None:
    assert not [rule for rule in rules("descheduler")["clusterRules"] if "reservations/status" in rule["resources"]]


def test_the_operator_touches_no_webhook_but_its_own() -> None:
    kind = "mutatingwebhookconfigurations"
    touching = [rule for rule in rules("operator")["clusterRules"] if kind in rule["resources"]]
    named = [rule.get("resourceNames") for rule in touching if rule["verbs"] != ["create"]]
    assert named == [[names.WEBHOOK_CONFIGURATION]]
