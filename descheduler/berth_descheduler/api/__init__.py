"""The descheduler over HTTP; the cluster authenticates and authorizes callers."""
