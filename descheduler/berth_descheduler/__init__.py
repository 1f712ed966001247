"""The descheduler: measures, plans, reserves, evicts and verifies.

It never writes a Reservation's status.
"""
