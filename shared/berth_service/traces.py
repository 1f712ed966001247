"""Whether traces are exported, by OpenTelemetry's own variables; the SDK reads those that are not named here.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from berth_core import InputError
from berth_service.extras import Extra, require

if TYPE_CHECKING:  # what an extra brings is imported once traces are on
    from berth_service.spans import Tracer

PLAN_SPAN: Final = "plan"
"""The span of a plan, within the trace that is known by the plan's uid."""

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The first that is set counts."""
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_DISABLED: Final = "OTEL_SDK_DISABLED"
_PROTOCOL: Final = "http/protobuf"
_ARGUMENTS: Final = {
    "max_export_batch_size": "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "max_queue_size": "OTEL_BSP_MAX_QUEUE_SIZE",
    "schedule_delay_millis": "OTEL_BSP_SCHEDULE_DELAY",
}
"""The variables that the SDK's refusals name by its own arguments."""


def move_span(index: int) -> str:
    """Return the span of a plan's move, by its position in `spec.moves`."""
    return f"move/{index}"


def are_on(environment: Mapping[str, str]) -> bool:
    """Return whether an endpoint is named and traces are not switched off."""
    is_off = environment.get(_DISABLED, "").lower() == "true" or environment.get(_EXPORTERS) == "none"
    return not is_off and _first_set(environment, ENDPOINTS) is not None


def build_tracer(service: str, environment: Mapping[str, str]) -> "Tracer | None":
    """Return what exports spans in the name of a service, None where traces are off.

    Raises `InputError` for an endpoint or a protocol that cannot be exported to and for a value that the SDK refuses,
    and `MissingPackagesError` without the extra `traces`.
    """
    if not are_on(environment):
        return None
    _refuse(environment, ENDPOINTS, "an address with http:// or https://", _is_address)
    _refuse(environment, _PROTOCOLS, f"{_PROTOCOL}, the only one that Berth has", lambda value: value == _PROTOCOL)
    _refuse(environment, (_EXPORTERS,), "otlp or none", lambda value: value == "otlp")
    require(Extra.TRACES, "exporting traces")
    from berth_service.spans import Tracer  # noqa: PLC0415 - it imports what the extra brings

    try:
        return Tracer.of_environment(service)
    except ValueError as error:
        name = _variable_of(str(error), environment)
        raise InputError(name, environment.get(name), f"what the OpenTelemetry SDK takes: {error}") from error


def _variable_of(message: str, environment: Mapping[str, str]) -> str:
    """Return the variable that a refusal of the SDK is about: it has its name, or that of an argument."""
    named = re.search(r"OTEL_[A-Z0-9_]+", message)
    if named is not None:
        return named[0]
    by_argument = (name for argument, name in _ARGUMENTS.items() if argument in message and environment.get(name))
    return next(by_argument, "OTEL_*")


def _first_set(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if environment.get(name)), None)


def _refuse(
    environment: Mapping[str, str], names: tuple[str, ...], expected: str, is_right: Callable[[str], bool]
) -> None:
    name = _first_set(environment, names)
    if name is not None and not is_right(environment[name]):
        raise InputError(name, environment[name], expected)


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
