"""What is observed: the index of watched objects and what drivers report. Never acts."""
