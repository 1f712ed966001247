"""What plans are for: one folder for each goal, with its strategy."""
