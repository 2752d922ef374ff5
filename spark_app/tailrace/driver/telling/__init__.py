"""Reports of the running driver: its status, in each of the forms in which it is shown, and the figures in it."""
