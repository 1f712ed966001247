"""Tries by server-side dry run, before an eviction, what the pod's controller would make in its stead."""
