"""The descheduler over HTTP: who asks is known to the cluster, what may be asked is decided by its RBAC."""
