"""Moves pods off nodes that are lent at certain hours, and onto them while they are lent."""
