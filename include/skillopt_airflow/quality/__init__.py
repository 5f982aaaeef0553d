"""The Great Expectations suites that records, fresh items and rollouts pass.

Enter by quality_report.py.
What a benchmark itself refuses in a record is in tasks/.
"""
