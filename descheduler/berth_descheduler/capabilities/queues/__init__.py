"""What queues are guaranteed, how much of that is placeable, and room for what is left of it."""
