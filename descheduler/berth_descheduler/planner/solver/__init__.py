"""The search for good packings: columns, filling, choice of nodes, bounds, order of moves; pure, needs numpy."""
