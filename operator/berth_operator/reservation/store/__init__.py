"""Caches of the Reservations, pods, nodes and rules that watches report."""
