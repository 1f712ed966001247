"""The command `berth demo`: frees nodes of a cluster made for it, or shows a feature in a scene."""
