"""What one process writes down about a sandbox so that another can find, use and stop it."""

from pathlib import Path

import msgspec

from berth_sandbox.components import ComponentPlace
from berth_sandbox.errors import SandboxNameError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import Ports
from berth_sandbox.settings import SandboxSettings


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one sandbox; `started` is RFC 3339."""

    settings: SandboxSettings
    ports: Ports
    binaries: dict[str, str]
    started: str

    def place(self, folder: SandboxFolder) -> ComponentPlace:
        """Return what the components' command lines are made of."""
        binaries = {name: Path(path) for name, path in self.binaries.items()}
        return ComponentPlace(binaries, folder, self.ports)


def write_record(folder: SandboxFolder, record: SandboxRecord) -> None:
    """Write the record."""
    folder.record.write_bytes(msgspec.json.encode(record))


def read_record(folder: SandboxFolder) -> SandboxRecord:
    """Return the record; raise `SandboxNameError` when the folder holds none that can be read."""
    try:
        return msgspec.json.decode(folder.record.read_bytes(), type=SandboxRecord)
    except (OSError, msgspec.MsgspecError) as error:
        name = folder.root.name
        raise SandboxNameError(f"no sandbox {name!r} is up; `berth sandbox up --name {name}` starts one") from error
