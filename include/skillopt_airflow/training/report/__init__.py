"""Reports of runs: history, report, published skills, and matrices of skills.

Enter by reporting.py.
The pages are made in report/ and served by ui/.
"""
