"""The admission webhook: its server, its certificates and its answers."""
