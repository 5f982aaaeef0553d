"""The stages of a training in order: rollout, reflect, update, gate, the end of an epoch and of the run.

Enter by steps.py and candidate.py.
The calls of the optimizer are in optimizer/, the gate's rules in core/gate.
"""
