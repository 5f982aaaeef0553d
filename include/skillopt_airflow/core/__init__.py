"""The domain: values and rules, without I/O, such as the gate that accepts a new skill.

Start with a room: config, values, gate, run or wire_formats. errors.py has the tree of exceptions.
The parts of benchmarks are in tasks/, the optimizer's calls in optimizer/.
"""
