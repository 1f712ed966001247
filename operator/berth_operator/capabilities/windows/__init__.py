"""ReservationWindows, which create a Reservation for each occurrence of a schedule."""
