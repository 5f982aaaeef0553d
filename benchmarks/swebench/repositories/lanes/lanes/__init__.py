"""Queues by priority, and paths through directed graphs."""
