"""What one commit must contain. Pure."""
