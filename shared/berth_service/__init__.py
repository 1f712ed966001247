"""Logs, name, health port and certificates of Berth's programs."""
