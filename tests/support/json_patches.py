"""The applying of JSON patches in tests, as RFC 6902 says, by code that the programs do not share."""
# ruff: noqa: ANN401 - a JSON value is anything

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def apply(operations: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> Any:
    """Apply a JSON patch of test, add and remove as RFC 6902 says; what it refuses is a LookupError."""
    result: Any = msgspec.json.decode(msgspec.json.encode(body))
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = result
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        _apply_one(operation, target, last)
    return result


def _apply_one(operation: Mapping[str, Any], target: Any, last: str) -> None:
    key: Any = int(last) if isinstance(target, list) and last != "-" else last
    match operation["op"]:
        case "test":
            if target[key] != operation["value"]:
                raise LookupError(operation)
        case "add" if last == "-":
            target.append(operation["value"])
        case "add":
            target[key] = operation["value"]
        case "remove":
            del target[key]
        case _:
            raise LookupError(operation)
