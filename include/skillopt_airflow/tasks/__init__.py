"""The parts of benchmarks: declared tasks, scoring, grading requests, corpora, sessions, repositories.

Start with protocols.py if you write an adapter, and with task_group.py for benchmarks without code.
The benchmarks themselves are in benchmarks/ at the top of the project.
"""
