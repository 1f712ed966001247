"""Runs the cluster's DeschedulerPolicies.

There is one leader among the replicas and one run at a time; every fact is in the API.
"""
