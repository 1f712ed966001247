"""What the operator does to the cluster: it carries decisions out, proves, seeks, sweeps and tells."""
