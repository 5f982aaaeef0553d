"""The statistical tests that compare skills: candidates, publications and nights.

Start with decision.py, which accepts or rejects candidates; policies.py has the tests by name.
The effects of a decision on the run are in core/run/moment_outcome.py.
"""
