"""Lowers what the workload cannot use of a free resource."""
