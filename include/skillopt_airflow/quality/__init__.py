"""The Great Expectations suites of records, fresh items and rollouts.

Enter by quality_report.py.
A benchmark's own checks of its records are in tasks/.
"""
