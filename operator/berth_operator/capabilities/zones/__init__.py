"""RevocableZones: nodes that are lent to preemptable pods at times, and their fences."""
