"""The state of a run: its schedule, what each moment changes in it, its budget and its history.

Enter by timeline.py and state.py.
Loading and storing a state is the work of training/.
"""
