"""The offline stand-in for the target and optimizer models, with three wire formats.

Start with server.py; stand_in.py chooses the next turn. It isn't a language model: it reads the answers from the
benchmarks' data, and answers an item correctly exactly if the skill has the sentence that the item needs.
"""
