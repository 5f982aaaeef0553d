"""Half-open intervals of whole numbers, such as minutes of a day."""
