"""The optimizer's calls as functions of a model and values; prompts/ has the prompt of each.

Start with reflect.py, the first call of a step.
The code in training/step loads the inputs of these calls and stores their results.
"""
