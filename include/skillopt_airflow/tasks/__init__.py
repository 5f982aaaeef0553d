"""What benchmarks are made of: declared tasks, scoring, judges' questions, corpora, sessions, repositories.

Enter by protocols.py if you write an adapter, and by task_group.py for benchmarks without code.
The benchmarks themselves are in benchmarks/ at the top of the project.
"""
