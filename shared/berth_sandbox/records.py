"""The record of a sandbox, by which another process can find, use and stop it."""

from pathlib import Path

import msgspec

from berth_core.decoding import decode_json
from berth_sandbox.components import ComponentPlace
from berth_sandbox.configuration import context_name
from berth_sandbox.errors import SandboxNameError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import Ports
from berth_sandbox.real_nodes.nodes import RealNodes
from berth_sandbox.settings import SandboxSettings


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one sandbox; `started` is RFC 3339."""

    settings: SandboxSettings
    ports: Ports
    binaries: dict[str, str]
    started: str

    def place(self, folder: SandboxFolder) -> ComponentPlace:
        binaries = {name: Path(path) for name, path in self.binaries.items()}
        settings = self.settings
        return ComponentPlace(binaries, folder, self.ports, settings.real_nodes, settings.node_lease_seconds)

    def real_nodes(self, folder: SandboxFolder) -> RealNodes:
        return RealNodes(folder, self.ports, context_name(self.settings.name), self.settings.real_nodes)


def write_record(folder: SandboxFolder, record: SandboxRecord) -> None:
    folder.record.write_bytes(msgspec.json.encode(record))


def read_record(folder: SandboxFolder) -> SandboxRecord:
    """Return the record; raises `SandboxNameError` if it is missing or unreadable."""
    try:
        return decode_json(folder.record.read_bytes(), SandboxRecord)
    except (OSError, msgspec.MsgspecError) as error:
        name = folder.root.name
        raise SandboxNameError(f"no sandbox {name!r} is up; `berth sandbox up --name {name}` starts one") from error
