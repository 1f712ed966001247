"""The optional parts of the operator, one folder each: each imports the kernel, and none imports another."""
