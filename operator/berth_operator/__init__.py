"""The operator, the only writer of the status of Reservations."""
