"""The harnesses, which run the target on an item: chat, tools, codex, claude_code.

Enter by chat.py, the simplest; core/config/harnesses.py has the map of all.
The files and commands of an item are in rollout/workspace.py.
"""
