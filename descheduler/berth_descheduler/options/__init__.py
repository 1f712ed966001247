"""The command line options that several programs and commands share, and what they say when something is wrong."""
