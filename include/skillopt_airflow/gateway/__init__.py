"""The one way out of a sandbox: it forwards model calls, holds the keys, and counts what is spent.

Enter by model_gateway.py; fallbacks.py tries again after 429 and 5xx.
Calls of the optimizer don't pass it; they are in models/optimizer.py.
"""
