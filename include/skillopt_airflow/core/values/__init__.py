"""The values that all other rooms use: items, trajectories, scores, skills, edits, stored documents.

Start with types.py.
Scores of whole splits, and their comparison, are in core/gate.
"""
