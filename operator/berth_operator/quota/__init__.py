"""How much may be reserved: limits, quotas and limit ranges, as values and arithmetic."""
