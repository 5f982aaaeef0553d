"""Everything before the first batch: settings, data, checks, estimate, first model calls.

Enter by preparation.py.
Reading files of records is the work of store/data.
"""
