"""What nodes cost an hour, by which `Consolidate` frees the most money."""
