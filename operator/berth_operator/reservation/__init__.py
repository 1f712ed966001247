"""One Reservation: what is observed and decided is in the modules of this folder, which are pure, but `reconciler`."""
