"""The offline stand-in for a model: target and optimizer of a world of known rules, behind three wire formats.

`server.py` serves it and `stand_in.py` decides the next turn. It isn't a language model: it knows the benchmarks'
answers from their data, and lets an item be right exactly if the skill has the sentence that its world drew for it.
"""
