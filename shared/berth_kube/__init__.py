"""The only code that talks to the Kubernetes API server; no decisions of ours."""
