"""What a person types: the command line."""
