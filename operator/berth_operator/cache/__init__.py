"""What the operator has heard of the cluster, kept up to date by watches; it decides nothing and writes nothing."""
