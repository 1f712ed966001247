"""What the operator knows of the cluster, kept up to date by watches."""
