"""The command line options that several programs and commands share.

Here is also what they say when something is wrong.
"""
