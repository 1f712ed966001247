"""The extender of Volcano's scheduler: which pods it may evict or let in, and what queues have used up."""
