"""The carrying out of plans: published, begun, places held, pods evicted, until all is over or undone."""
