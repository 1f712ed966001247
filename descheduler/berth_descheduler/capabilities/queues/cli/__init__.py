"""What `berth fragmentation` shows of queues."""
