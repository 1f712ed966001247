"""Owns the description as a page for people: made from it, without scripts and without anything from elsewhere.

It does not own the description.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import jinja2

_TEMPLATE: Final = "rest.html.j2"
CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def render_page(description: Mapping[str, Any]) -> str:
    """Return the page of a description."""
    return _template().render(
        info=description["info"],
        operations=list(_operations(description)),
        schemas=description["components"]["schemas"],
        type_of=type_of,
    )


def type_of(schema: Mapping[str, Any]) -> str:
    """Return in a few words what a schema takes; a name that is a document's is linked by the template."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(str(one) for one in schema["enum"])
    if "items" in schema:
        return f"list of {type_of(schema['items'])}"
    values = schema.get("additionalProperties")
    return f"map of {type_of(values)}" if isinstance(values, Mapping) else str(schema.get("type", "anything"))


def _operations(description: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield {**operation, "path": path, "method": method.upper()}


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("berth_descheduler")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(_TEMPLATE)
