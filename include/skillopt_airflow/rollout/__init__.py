"""The program inside the sandbox image: it runs items under a skill and writes their trajectories.

Enter by program.py; harnesses/ has the ways in which a target runs.
The host's side, which starts containers, is in sandbox/.
"""
