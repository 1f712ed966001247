"""Says what DeschedulerPolicies mean: when they run, with which settings, and what is wrong with them."""
