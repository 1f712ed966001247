"""Moves pods off the nodes that ReservationWindows wait for."""
