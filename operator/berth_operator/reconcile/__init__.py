"""What is true of a Reservation and what follows from it, as pure functions."""
