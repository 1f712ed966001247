from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec.inspect
import pytest
import yaml

from berth_core import (
    PLAN_API_VERSION,
    PLAN_KIND,
    POLICY_API_VERSION,
    POLICY_KIND,
    QUEUE_API_VERSION,
    QUEUE_KIND,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    WINDOW_API_VERSION,
    WINDOW_KIND,
    PodTemplate,
    gated_queues,
    migration_plans,
    policies,
    reservations,
    revocable_zones,
    windows,
)
from berth_kube import REVOCABLE_ZONES
from conventions.tracked import ROOT

CONTRACTS: Final = {
    ("reservations", "spec"): reservations.ReservationSpec,
    ("reservations", "status"): reservations.ReservationStatus,
    ("migrationplans", "spec"): migration_plans.MigrationPlanSpec,
    ("migrationplans", "status"): migration_plans.MigrationPlanStatus,
    ("deschedulerpolicies", "spec"): policies.DeschedulerPolicySpec,
    ("deschedulerpolicies", "status"): policies.DeschedulerPolicyStatus,
    ("reservationwindows", "spec"): windows.ReservationWindowSpec,
    ("reservationwindows", "status"): windows.ReservationWindowStatus,
    ("revocablezones", "spec"): revocable_zones.RevocableZoneSpec,
    ("revocablezones", "status"): revocable_zones.RevocableZoneStatus,
    ("queues", "spec"): gated_queues.GatedQueueSpec,
    ("queues", "status"): gated_queues.GatedQueueStatus,
}
OPEN: Final = frozenset({PodTemplate})
"""Structs of which Berth reads a part, and the API server keeps all."""

ANYTHING: Final = "anything"
PLURALS: Final = sorted(path.stem for path in (ROOT / "crds").glob("*.yaml"))


@cache
def read_crd(plural: str) -> dict[str, Any]:
    crd: dict[str, Any] = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text(encoding="utf-8"))
    return crd


def schema(plural: str) -> dict[str, Any]:
    (version,) = read_crd(plural)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def fields_of_schema(path: str, node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each path in a schema with its kind; in lists the path goes on with [], in maps with {}; * is required."""
    yield path, node.get("type", ANYTHING) + (" of " + " ".join(sorted(node["enum"])) if "enum" in node else "")
    for name, inner in node.get("properties", {}).items():
        mark = "*" if name in node.get("required", ()) else ""
        yield from fields_of_schema(f"{path}.{name}{mark}", inner)
    if "items" in node:
        yield from fields_of_schema(f"{path}[]", node["items"])
    if "additionalProperties" in node:
        yield from fields_of_schema(f"{path}{{}}", node["additionalProperties"])


def fields_of_type(path: str, kind: msgspec.inspect.Type) -> Iterator[tuple[str, str]]:
    """Yield the same of a contract's type."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            several = [one for one in types if not isinstance(one, msgspec.inspect.NoneType)]
            if len(several) > 1:  # a number or a string
                yield path, ANYTHING
            else:
                yield from fields_of_type(path, several[0])
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            yield path, "object"
            for field in () if cls in OPEN else fields:
                mark = "*" if field.required else ""
                yield from fields_of_type(f"{path}.{field.encode_name}{mark}", field.type)
        case msgspec.inspect.VarTupleType(item_type=item):
            yield path, "array"
            yield from fields_of_type(f"{path}[]", item)
        case msgspec.inspect.DictType(value_type=msgspec.inspect.AnyType()):
            yield path, ANYTHING
        case msgspec.inspect.DictType(value_type=value):
            yield path, "object"
            yield from fields_of_type(f"{path}{{}}", value)
        case msgspec.inspect.EnumType(cls=cls):
            yield path, "string of " + " ".join(sorted(member.value for member in cls))
        case _:
            names = {"StrType": "string", "IntType": "integer", "FloatType": "number", "BoolType": "boolean"}
            yield path, names[type(kind).__name__]


_EXPRESSION: Final = "spec.owners[].labelSelector.matchExpressions[]"
_NAMESPACES: Final = "spec.namespaceSelector.matchExpressions[]"
STRICTER: Final = {
    f"{_EXPRESSION}.key*": f"{_EXPRESSION}.key",
    f"{_EXPRESSION}.operator*": f"{_EXPRESSION}.operator",
    f"{_NAMESPACES}.key*": f"{_NAMESPACES}.key",
    f"{_NAMESPACES}.operator*": f"{_NAMESPACES}.operator",
    "status.conditions[].status*": "status.conditions[].status*",
}
"""Fields about which the API server asks more than the contract, which also serves other objects."""


def strict_fields(plural: str, part: str) -> dict[str, str]:
    """Return what a schema and a contract must agree on."""
    return {
        STRICTER.get(path, path): kind.split(" of ")[0] if path in STRICTER else kind
        for path, kind in fields_of_schema(part, schema(plural)["properties"][part])
        if ".template*." not in path and ".template." not in path
    }


@pytest.mark.parametrize(("where", "contract"), CONTRACTS.items(), ids=["-".join(where) for where in CONTRACTS])
def test_a_crd_has_the_fields_of_its_contract_and_no_others(where: tuple[str, str], contract: type) -> None:
    plural, part = where
    assert strict_fields(plural, part) == dict(fields_of_type(part, msgspec.inspect.type_info(contract)))


def undescribed(path: str, node: dict[str, Any]) -> Iterator[str]:
    for name, inner in node.get("properties", {}).items():
        if not inner.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(f"{path}.{name}", inner)
    if "items" in node:
        yield from undescribed(f"{path}[]", node["items"])


@pytest.mark.parametrize("plural", PLURALS)
def test_every_field_is_described(plural: str) -> None:
    # The API server refuses a description of metadata, which it describes itself.
    assert list(undescribed("", schema(plural))) == [".metadata"]


@pytest.mark.parametrize(
    ("plural", "api_version", "kind"),
    [
        ("reservations", RESERVATION_API_VERSION, RESERVATION_KIND),
        ("migrationplans", PLAN_API_VERSION, PLAN_KIND),
        ("deschedulerpolicies", POLICY_API_VERSION, POLICY_KIND),
        ("reservationwindows", WINDOW_API_VERSION, WINDOW_KIND),
        ("revocablezones", REVOCABLE_ZONES.api_version, REVOCABLE_ZONES.kind),
        ("queues", QUEUE_API_VERSION, QUEUE_KIND),
    ],
    ids=["rsv", "mplan", "dpol", "rsvw", "rvz", "bq"],
)
def test_a_crd_serves_the_version_of_its_contract(plural: str, api_version: str, kind: str) -> None:
    spec = read_crd(plural)["spec"]
    assert f"{spec['group']}/{spec['versions'][0]['name']}" == api_version
    assert spec["names"]["kind"] == kind


def rules(node: object) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", ())
        for inner in node.values():
            yield from rules(inner)


@pytest.mark.parametrize("plural", PLURALS)
def test_every_rule_says_what_is_wrong(plural: str) -> None:
    found = list(rules(schema(plural)))
    assert found
    assert not [rule["rule"] for rule in found if len(rule.get("message", "").split()) < 5]
