"""A real local control plane for the demo and the tests.

Production never uses it.
"""
