"""The page that shows the OpenAPI description, without scripts or external resources."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import jinja2
import msgspec

from berth_descheduler.api.openapi import examples

_TEMPLATE: Final = "rest.html.j2"
CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def render_page(description: Mapping[str, Any]) -> str:
    return _template().render(
        info=description["info"],
        operations=list(_operations(description)),
        statuses=_shared_statuses(description),
        schemas=description["components"]["schemas"],
        type_of=type_of,
    )


def type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema in words; the template links documents."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(type_of(alternative) for alternative in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(str(value) for value in schema["enum"])
    if "items" in schema:
        return f"list of {type_of(schema['items'])}"
    values = schema.get("additionalProperties")
    return f"map of {type_of(values)}" if isinstance(values, Mapping) else str(schema.get("type", "anything"))


def _shared_statuses(description: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the answers that mean the same on every path, by status."""
    operations = [operation["responses"] for operation in _operations(description)]
    return {
        status: answer
        for status, answer in operations[0].items()
        if all(responses.get(status) == answer for responses in operations)
    }


def _operations(description: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            example = examples()[operation["operationId"]]
            yield {**operation, "path": path, "method": method.upper(), "example": _written(example)}


def _written(example: Mapping[str, Any]) -> dict[str, str]:
    """Return a request and its answer as they are sent: texts as they are, documents as indented JSON."""
    body, answer = example.get("body"), example["answer"]
    lines = [example["request"], "Authorization: Bearer TOKEN"]
    if body is not None:
        lines += ["Content-Type: application/json", "", msgspec.json.encode(body).decode()]
    shown = answer if isinstance(answer, str) else msgspec.json.format(msgspec.json.encode(answer), indent=1).decode()
    return {"request": "\n".join(lines), "answer": shown.rstrip()}


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("berth_descheduler")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(_TEMPLATE)
