"""Evictions by others: pods that ask for it are replaced before they go."""
