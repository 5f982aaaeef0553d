"""The optimizer's calls as functions of a model and values; each has its prompt in prompts/.

Enter by reflect.py, the first call of a step.
What a step loads and stores around these calls is in training/step.
"""
