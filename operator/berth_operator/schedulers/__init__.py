"""How schedulers report on pods, and how a pod is led to a node."""
