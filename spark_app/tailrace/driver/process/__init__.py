"""The driver as a process: its run folder, its child, its threads, its end, and its hold on the change log."""
