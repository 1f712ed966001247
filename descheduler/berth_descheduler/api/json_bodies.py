"""Accepts only JSON bodies that every parser reads the same.

What two parsers read differently could be approved by one and carried out by another: a key that comes twice, another
encoding than UTF-8, and numbers that JSON does not have. RFC 8259 leaves all three to the parser.
"""

import json
from collections.abc import Sequence
from typing import Any

from berth_descheduler.api.problems import ProblemError, ProblemKind, fault


def require_plain_json(body: bytes) -> None:
    """Raise `ProblemError` unless a body is JSON that every parser reads the same."""
    try:
        json.loads(body.decode("utf-8"), object_pairs_hook=_without_repeated_keys, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _malformed("it is not encoded in UTF-8") from error
    except RecursionError as error:
        raise _malformed("it is nested too deeply") from error
    except ValueError as error:  # also a number of too many digits
        raise _malformed(str(error)) from error


def _without_repeated_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key comes twice in one object")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _malformed(reason: str) -> ProblemError:
    return ProblemError(
        ProblemKind.MALFORMED, f"the body is not JSON: {reason}", faults=[fault("body", None, "a JSON object")]
    )
