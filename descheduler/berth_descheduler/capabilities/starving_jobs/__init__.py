"""Keeps nodes for jobs that have waited for too long."""
