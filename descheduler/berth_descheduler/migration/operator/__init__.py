"""Whether the operator is alive, and what is cleaned up after one that is not."""
