"""The operator: holds, hands over, expires and collects Reservations; the only writer of their status."""
