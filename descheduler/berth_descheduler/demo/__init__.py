"""The demo runs the whole chain on a cluster made for it.

Nothing in production uses it.
"""
