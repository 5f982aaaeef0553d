"""The stand-in as target: what it says or does next about an item."""

from local.standin.agent import loading, offered, opening, usable
from local.standin.conversation import Conversation, Reply, Turn
from local.standin.deep_reflect import explain
from local.standin.reader import respond
from local.standin.tools import TOOLS


def act(conversation: Conversation) -> Reply:
    """Load a skill that is only announced, use a tool of the benchmark, answer, or explain a given answer."""
    load = loading(conversation)
    if load is not None:
        return Reply(calls=(load,))
    skill, task = opening(conversation)
    answers = [turn for turn in conversation.turns if turn.role == "assistant" and not turn.calls]
    if answers and _asks_about_an_answer(conversation.turns[-1]):
        return Reply(explain(skill, _first(conversation), answers[-1].text))
    use = next((TOOLS[name] for name in usable(conversation, task) if name in TOOLS), None)
    if use is None:
        return Reply(respond(skill, task))
    reply = use(skill, task, [turn.text for turn in conversation.turns if turn.role == "tool"])
    return Reply(reply.text, tuple(offered(call, conversation, task) for call in reply.calls))


def _asks_about_an_answer(last: Turn) -> bool:
    """Whether the last turn is a question about an answer that was given, and not the item itself."""
    return last.role == "user" and "<documents>" not in last.text


def _first(conversation: Conversation) -> str:
    return next((turn.text for turn in conversation.turns if turn.role == "user"), "")
