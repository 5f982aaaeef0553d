"""A run: its schedule, its state and the changes of each moment, its budget and its history.

Start with timeline.py and state.py.
Loading and storing a state is in training/.
"""
