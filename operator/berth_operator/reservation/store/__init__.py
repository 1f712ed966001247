"""What watches have brought: Reservations, pods, nodes and rules."""
