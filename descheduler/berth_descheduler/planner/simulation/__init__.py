"""The cluster as the planner simulates it, with the scheduler's rules."""
