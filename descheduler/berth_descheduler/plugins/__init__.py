"""What a policy can configure: the arguments of the balance plugins and the eviction filters; pure, no I/O."""
