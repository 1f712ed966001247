"""What `berth show` printed last, so that `berth approve` approves that plan and no other one under its name.

It is kept per user in a file below $XDG_STATE_HOME. Where it cannot be written, as in a container without a home, an
approval names the plan with `--uid`.
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from berth_core import MigrationPlan
from berth_core.decoding import Decoder
from berth_descheduler.migration.plans.looked_at import LookedAt

_REMEMBERED: Final = 100
"""Plans that are kept in the file, those that were shown last."""
_MOST_BYTES: Final = 16 * 1024 * 1024


class _ShownPlan(msgspec.Struct, frozen=True):
    """A plan as it was shown."""

    server: str
    name: str
    uid: str
    moves: tuple[str, ...]


_DECODER: Final = Decoder(tuple[_ShownPlan, ...])


def state_file(environment: Mapping[str, str] = os.environ) -> Path:
    folder = environment.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(folder) / "berth" / "shown-plans.json"


def remember(server: str, plan: MigrationPlan) -> None:
    """Keep what a plan was when it was shown; a file that cannot be written is left alone."""
    looked_at = LookedAt.of(plan)
    shown_plan = _ShownPlan(server, plan.metadata.name, looked_at.uid, looked_at.moves or ())
    others = [kept for kept in _read() if (kept.server, kept.name) != (server, shown_plan.name)]
    with suppress(OSError, RuntimeError):
        _write([*others, shown_plan][-_REMEMBERED:])


def recall(server: str, name: str) -> LookedAt | None:
    """Return a plan as it was shown last, None if it never was.

    Only its uid counts: the moves of a plan never change, its status may.
    """
    shown_plan = next((kept for kept in reversed(_read()) if (kept.server, kept.name) == (server, name)), None)
    return None if shown_plan is None else LookedAt(uid=shown_plan.uid, moves=shown_plan.moves)


def _read() -> tuple[_ShownPlan, ...]:
    with suppress(OSError, RuntimeError, msgspec.DecodeError):
        file = state_file()
        if file.stat().st_size <= _MOST_BYTES:
            return _DECODER.decode(file.read_bytes())
    return ()


def _write(shown_plans: list[_ShownPlan]) -> None:
    """Replace the file as a whole, so that two commands at once leave one of both."""
    file = state_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary_name = tempfile.mkstemp(dir=file.parent)  # only its owner may read it
    temporary_file = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(msgspec.json.encode(shown_plans))
        temporary_file.replace(file)
    except BaseException:
        temporary_file.unlink(missing_ok=True)
        raise
