"""The demo: the whole chain on a cluster made for it; nothing in production uses it."""
