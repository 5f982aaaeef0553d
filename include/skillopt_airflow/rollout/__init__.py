"""The program inside the sandbox image: runs items with a skill and writes their trajectories.

Enter by program.py; harnesses/ has one module per harness.
The host's side, which starts containers, is in sandbox/.
"""
