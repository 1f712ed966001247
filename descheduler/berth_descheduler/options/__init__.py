"""The command line options that several programs and commands share; it prints nothing but help and errors."""
