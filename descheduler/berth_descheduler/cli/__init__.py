"""The command `berth`: what people type, and what it prints and exits with; nothing else imports it."""
