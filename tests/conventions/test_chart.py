import re
from typing import Any, Final

import pytest
import yaml

from berth_core import labels, names
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
    assert set(rules(program)) <= {"clusterRules", "namespaceRules", "dryRunRules", "evictionRules"}
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
    assert named == [[names.WEBHOOK_CONFIGURATION, names.QUEUE_WEBHOOK_CONFIGURATION]]
    kind = "validatingwebhookconfigurations"
    (touching,) = [rule for part in rules("operator").values() for rule in part if kind in rule["resources"]]
    assert (touching["verbs"], touching["resourceNames"]) == (["patch"], [names.EVICTION_WEBHOOK_CONFIGURATION])


def test_only_the_right_to_dry_runs_hangs_on_the_policies() -> None:
    assert rules("operator")["dryRunRules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    assert "dryRunRules" not in rules("descheduler")


def test_the_right_to_evict_comes_only_with_the_answers_to_evictions() -> None:
    given = {
        part for part, found in rules("operator").items() for rule in found if "pods/eviction" in rule["resources"]
    }
    assert given == {"evictionRules"}


def test_the_policies_speak_of_the_keys_and_names_that_the_programs_use() -> None:
    text = (CHART / "files" / "admission-policies.yaml").read_text(encoding="utf-8")
    written = set(re.findall(r"\bberth\.volcano\.sh/[a-z-]+", text))
    assert written <= {value for value in vars(labels).values() if isinstance(value, str)}
    for name in (
        names.OPERATOR_LEASE,
        names.DESCHEDULER_LEASE,
        names.LEADER_LEASE,
        names.WEBHOOK_CONFIGURATION,
        names.WEBHOOK_SECRET,
    ):
        assert f"'{name}'" in text


def test_the_policies_know_what_placeholders_run_by_default() -> None:
    template = (CHART / "templates" / "admission-policies.yaml").read_text(encoding="utf-8")
    assert f'default "{names.PLACEHOLDER_IMAGE}"' in template
