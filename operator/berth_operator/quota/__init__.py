"""Limits, quotas and limit ranges on what may be reserved, as values and arithmetic."""
