"""Makes room for pods that wait, or for shapes of pods to come."""
