"""Everything before the first batch: settings, data, checks, estimate, first model calls.

Enter by preparation.py; records_to_items.py turns records into items.
Files of records are read in store/data.
"""
