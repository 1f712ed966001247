"""What plans write on nodes and ask about them."""
