"""What Berth's programs have in common as processes: their logs, their name, the health port."""
