"""ReservationWindows: a Reservation for each occurrence of a schedule."""
