"""Moves pods off nodes that are lent by the clock, and onto them while they are lent."""
