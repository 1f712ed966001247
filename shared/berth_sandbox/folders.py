"""Folders of built binaries, named sandboxes, and the files of one sandbox."""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_sandbox.settings import check_name

_PREFIX: Final = "berth-sandbox-"
_REMOVE_ATTEMPTS: Final = 20
_REMOVE_PAUSE_SECONDS: Final = 0.1


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for built binaries: under XDG_CACHE_HOME, else under ~/.cache."""
    return _user_folder(environ, "XDG_CACHE_HOME", ".cache")


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for named sandboxes: under XDG_STATE_HOME, else under ~/.local/state."""
    return _user_folder(environ, "XDG_STATE_HOME", ".local/state") / "sandboxes"


def _user_folder(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """Return Berth's folder below a variable's; as in XDG, a relative value counts as unset."""
    value = environ.get(variable, "")
    base = Path(value) if Path(value).is_absolute() else Path.home() / fallback
    return base / "berth"


def named_folder(name: str) -> Path:
    """Return the folder of a named sandbox, existing or not; raises InputError."""
    check_name(name)
    return state_folder() / name


def temporary_folder() -> Path:
    """Make a new folder for a nameless sandbox."""
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


@dataclass(frozen=True, slots=True)
class SandboxFolder:
    """The files of one sandbox below `root`, which belongs to it alone."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig.yaml"

    @property
    def record(self) -> Path:
        """The record by which another process finds, restarts and stops the components."""
        return self.root / "sandbox.json"

    @property
    def etcd_data(self) -> Path:
        return self.root / "etcd"

    @property
    def kwok_config(self) -> Path:
        """The Stage objects that kwok plays."""
        return self.root / "kwok.yaml"

    @property
    def audit_policy(self) -> Path:
        """The calls that the API server records."""
        return self.root / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        """Log of the calls of Berth's accounts: one JSON object a line, without bodies."""
        return self.root / "logs" / "audit.log"

    def scheduler_config(self, scheduler: str) -> Path:
        """The KubeSchedulerConfiguration of one scheduler."""
        return self.root / f"{scheduler}.config.yaml"

    def user_kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one client of the API server."""
        return self.root / "kubeconfigs" / f"{user}.yaml"

    def certificate(self, name: str) -> Path:
        """One certificate, PEM."""
        return self.root / "pki" / f"{name}.crt"

    def key(self, name: str) -> Path:
        """One private key, PEM."""
        return self.root / "pki" / f"{name}.key"

    def log(self, component: str) -> Path:
        """Standard output and standard error of one component."""
        return self.root / "logs" / f"{component}.log"

    def node(self, node: str) -> Path:
        """Folder of one real node: the configuration of its programs."""
        return self.root / "nodes" / node

    @property
    def relay_socket(self) -> Path:
        """The socket by which the API server reaches real nodes."""
        return self.root / "relay.sock"

    @property
    def egress_config(self) -> Path:
        """The API server's EgressSelectorConfiguration, by which it reaches real nodes."""
        return self.root / "egress.yaml"

    def pid_file(self, component: str) -> Path:
        """The process id of one component; absent when it was never started."""
        return self.root / "pids" / component

    def make(self) -> None:
        """Create the folders, readable by their owner only: they hold keys."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder_name in ("kubeconfigs", "pki", "logs", "pids"):
            (self.root / folder_name).mkdir(mode=0o700, exist_ok=True)


def remove_folder(root: Path) -> None:
    """Remove a sandbox's folder, again while a dying process still writes into it."""
    for _ in range(_REMOVE_ATTEMPTS):
        shutil.rmtree(root, ignore_errors=True)
        if not root.exists():
            return
        time.sleep(_REMOVE_PAUSE_SECONDS)
