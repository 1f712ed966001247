"""The descheduler: measures, plans, reserves, evicts and verifies; it never writes a Reservation's status."""
