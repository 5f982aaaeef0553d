"""The tests by which skills are compared: candidates, publications and nights.

Enter by decision.py, where a candidate passes or not; policies.py has the tests by name.
What passing changes in a run is in core/run/moment_gate.py.
"""
