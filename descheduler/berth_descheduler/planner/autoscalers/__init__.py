"""What node autoscalers and clouds write on pods and nodes, read as those who write it define it."""
