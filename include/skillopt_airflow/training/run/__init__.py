"""A run as its stages see it: record, connections, models, spending, timing.

Enter by run.py.
The values of a run's state are in core/run.
"""
