"""The errors of the sandbox.

PermanentError (berth_core)
└── SandboxError                 the sandbox cannot do what was asked
    ├── SandboxUnavailableError  the binaries can neither be found nor built here; says what to install
    ├── ComponentError           a component ended or did not become ready; carries the tail of its log
    ├── ServiceError             a service of ours ended or was not ready; carries the tail of its log
    └── SandboxNameError         a name that is taken, or that nothing is up under
"""

from berth_core import PermanentError


class SandboxError(PermanentError):
    """The sandbox cannot do what was asked, now or at another try."""


class SandboxUnavailableError(SandboxError):
    """The control plane's binaries can neither be found nor built; the text says what to install."""


class ComponentError(SandboxError):
    """A component ended or did not become ready in time; the text has the end of its log."""


class ServiceError(SandboxError):
    """A service of Berth failed or was not ready in time; the text has the end of its log."""


class SandboxNameError(SandboxError):
    """A sandbox of that name is already up, or none is."""
