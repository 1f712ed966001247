"""The command `berth`: its input, output and exit codes.

Nothing else imports it.
"""
