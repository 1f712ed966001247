"""Moves the pods that deschedule plugins name, and no others."""
