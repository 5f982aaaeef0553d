"""The domain: values and rules, without any input or output.

Enter by the room that you look for: config, values, gate, run, wire_formats; errors.py has the tree of exceptions.
What benchmarks are made of is in tasks/; the optimizer's calls are in optimizer/.
"""
