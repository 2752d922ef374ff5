"""What ought to be: pure functions of a frozen observation."""
