"""The objects that the descheduler creates, built by pure functions."""
