"""The ways in which a target runs an item: chat, tools, codex, claude_code.

Enter by chat.py, the simplest; core/config/harnesses.py has the map of all.
What an item may touch is in rollout/workspace.py.
"""
