"""Measurements on the real platform; bench/results has the tables."""
