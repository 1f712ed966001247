"""Moves all pods off nodes: `berth drain` and `POST /v1/drains`."""
