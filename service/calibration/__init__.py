"""Offline: refits the numbers of the physics to stored runs, and measures how far its answers can be trusted."""
