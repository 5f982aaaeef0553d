"""Numbers in words, in Roman letters and in units."""
