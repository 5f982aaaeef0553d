"""Measurements through the real platform; results are committed as tables in bench/results."""
