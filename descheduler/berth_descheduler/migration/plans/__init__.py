"""The life of a plan: requested, published, begun, carried out, stopped, recovered."""
