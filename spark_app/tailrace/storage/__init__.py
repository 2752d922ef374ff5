"""Local folders and object stores, with exclusive creation."""
