"""Rules that extract an answer from a response and compare it with the reference.

Start with scoring_rule.py; tasks/task_group.py has the map of all rules.
The judge model is in optimizer/judge.py, and scoring by tests in sandbox/judge_container.py.
"""
