"""A real local control plane for the demo and the tests; production never uses it."""
