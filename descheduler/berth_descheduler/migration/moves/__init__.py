"""The life of a move: in which order, what it remembers, what is observed, the next step, the calls of a step."""
