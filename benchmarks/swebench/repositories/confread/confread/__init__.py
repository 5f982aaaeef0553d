"""Settings in sections, as in INI files."""
