"""Snapshot planning and the chunk rule. Pure."""
