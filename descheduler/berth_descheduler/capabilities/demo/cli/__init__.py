"""The command `berth demo`, its scenario and its scenes."""
