"""Looks at a plan again: before it begins, before its moves begin, and before each eviction."""
