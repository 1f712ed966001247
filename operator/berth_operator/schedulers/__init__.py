"""What schedulers say of pods, and how a pod is led to its node."""
