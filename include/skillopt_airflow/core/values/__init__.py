"""The values that all other rooms pass around: items, trajectories, scores, skills, edits, stored documents.

Enter by types.py.
Scores of whole splits, and what compares them, are in core/gate.
"""
