"""Rules that take an answer from a response and compare it with the reference.

Enter by scoring_rule.py; tasks/task_group.py has the map of all rules.
Judging by a model is in optimizer/judge.py, and by tests in sandbox/judge_container.py.
"""
