"""Rehearses plans on a twin of the cluster: `berth plan --rehearse`."""
