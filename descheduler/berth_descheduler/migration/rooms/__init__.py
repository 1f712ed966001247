"""The life of a room: what is observed, the next step, the calls of a step."""
