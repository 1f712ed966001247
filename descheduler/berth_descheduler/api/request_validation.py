"""What FastAPI finds wrong with a request, as a problem."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_descheduler.api.problems import FieldFault, ProblemError, ProblemKind, fault, invalid

_EXPECTED: Final[Mapping[str, str]] = {
    "missing": "a value",
    "bool_type": "true or false",
    "string_type": "a text",
    "extra_forbidden": "to be left out: there is no such field",
    "model_attributes_type": "a JSON object",
    "dict_type": "a JSON object",
    "int_parsing": "a whole number",
}


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ProblemError:
    """Return what FastAPI found wrong with a request as a problem."""
    broken = next((error for error in errors if error["type"] == "json_invalid"), None)
    if broken is not None:
        reason = (broken.get("ctx") or {}).get("error", "it cannot be read")
        return ProblemError(
            ProblemKind.MALFORMED,
            f"the body is not JSON: {reason}",
            faults=[FieldFault("body", "", "a JSON object")],
        )
    return invalid([_fault_of(error) for error in errors])


def _fault_of(error: Mapping[str, Any]) -> FieldFault:
    location = ".".join(str(part) for part in error["loc"])
    value = None if error["type"] == "missing" else error.get("input")
    return fault(location, value, _expected(error))


def _expected(error: Mapping[str, Any]) -> str:
    if error["type"] == "literal_error":
        return f"one of {error['ctx']['expected']}".replace("'", "")
    text = str(error["msg"])
    return _EXPECTED.get(error["type"], text[:1].lower() + text[1:])
