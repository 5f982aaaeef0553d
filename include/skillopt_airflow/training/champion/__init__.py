"""The champion: publication, approval, rollback, and nights of re-gating.

Enter by publication.py and night_conclusion.py.
Moving the alias itself is in store/aliases.py.
"""
