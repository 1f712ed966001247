"""Takes Berth out of a cluster: what is live, then the release, then every mark that is left."""

from berth_descheduler.uninstall.removal import Item, Removal, RemovalStep, Settings

__all__ = ["Item", "Removal", "RemovalStep", "Settings"]
