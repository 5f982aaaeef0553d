"""How a skill becomes the champion and stays it: publication, approval, nights of re-gating.

Enter by publication.py and night.py.
Moving the alias itself is in store/aliases.py.
"""
