"""Runs the cluster's DeschedulerPolicies: one leader among the replicas, one run at a time, every fact in the API."""
