"""A real local control plane for the demo and the tests; never used in production."""
