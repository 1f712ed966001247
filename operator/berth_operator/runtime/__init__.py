"""The process: kopf, the lease, threads, the queue of keys, and the registry of capabilities."""
