"""Traces: a span of OpenTelemetry for each step by which a place is held and handed over."""
