"""What is seen: the index of watched objects and what drivers say. Never acts."""
