"""Tables in plain text."""
