"""Everything before the first batch: settings, data, checks, estimate, a first call of each model.

Enter by preparation.py.
Reading files of records is the work of store/data.
"""
