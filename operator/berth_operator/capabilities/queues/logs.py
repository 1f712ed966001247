"""The log events of queues."""

from typing import Final

SCOPE_CHANGED: Final = "namespaces of queues changed"
UNGATED: Final = "pod let go by its queue"
SLOT_CREATED: Final = "slot of a queue created"
SLOT_ENDED: Final = "slot of a queue ended"
