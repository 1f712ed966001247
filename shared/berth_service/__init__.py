"""What Berth's programs have in common as processes: their logs, name, health port and certificates."""
