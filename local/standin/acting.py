"""The stand-in as target: what it says or does next about an item."""

import json
import re
from collections.abc import Mapping, Sequence

from local.standin.agent import loading, looking, offered, opening, usable
from local.standin.conversation import Call, Conversation, Reply, Turn
from local.standin.directives import recognise
from local.standin.picture_parts import named
from local.standin.questioning import explain
from local.standin.reader import respond, respond_to
from local.standin.subject import Active, Tool
from local.standin.subjects import SUBJECTS

_QUESTION = re.compile(r"Question:(?P<question>.*?)(?:\n\s*\n|\Z)", re.DOTALL)


def act(conversation: Conversation) -> Reply:
    """Load or look at what is only announced, use a tool of the benchmark, answer, or explain a given answer."""
    first = loading(conversation) or looking(conversation)
    if first is not None:
        return Reply(calls=(first,))
    skill, task = opening(conversation)
    answers = [turn for turn in conversation.turns if turn.role == "assistant" and not turn.calls]
    if answers and _asks_about_an_answer(conversation.turns[-1]):
        return Reply(explain(skill, _first(conversation), answers[-1].text))
    use = next((TOOLS[name] for name in usable(conversation, task) if name in TOOLS), None)
    if use is None:
        return Reply(respond(skill, named(task), conversation.pictures))
    reply = use(recognise(skill), task, [turn.text for turn in conversation.turns if turn.role == "tool"])
    return Reply(reply.text, tuple(offered(call, conversation, task) for call in reply.calls))


def search(active: Active, task: str, results: Sequence[str]) -> Reply:
    """Search with the question as it stands, then answer from what was found."""
    match = _QUESTION.search(task)
    question = " ".join((match["question"] if match else task).split())
    if not results:
        return Reply(calls=(Call("search_documents", json.dumps({"query": question}, ensure_ascii=False)),))
    found = "\n".join(results)
    return Reply(respond_to(active, f"<documents>\n{found}\n</documents>\n\nQuestion: {question}\n\n"))


TOOLS: Mapping[str, Tool] = {
    "search_documents": search,
    **{name: tool for subject in SUBJECTS for name, tool in subject.tools.items()},
}


def _asks_about_an_answer(last: Turn) -> bool:
    """Return whether the last turn is a question about an answer that was given, and not the item itself."""
    return last.role == "user" and "<documents>" not in last.text


def _first(conversation: Conversation) -> str:
    return next((turn.text for turn in conversation.turns if turn.role == "user"), "")
