"""The only way out of a sandbox: forwards model calls, holds the keys, and counts the spending.

Enter by model_gateway.py; retries.py backs off after 429 and 5xx, and one_try.py slows down after 429.
The optimizer's calls don't use the gateway; they are in models/optimizer.py.
"""
