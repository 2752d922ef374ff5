"""The desired state: pure functions of a frozen observation."""
