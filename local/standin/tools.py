"""What the stand-in as target does with the tools of benchmarks."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from local.standin.conversation import Call, Reply
from local.standin.directives import recognise
from local.standin.reader import respond
from local.standin.spreadsheet import use_tool

_QUESTION = re.compile(r"Question:(?P<question>.*?)(?:\n\s*\n|\Z)", re.DOTALL)


def search(skill: str, task: str, results: Sequence[str]) -> Reply:
    """Search with the question as it stands, then answer from what was found."""
    match = _QUESTION.search(task)
    question = " ".join((match["question"] if match else task).split())
    if not results:
        return Reply(calls=(Call("search_documents", json.dumps({"query": question}, ensure_ascii=False)),))
    found = "\n".join(results)
    return Reply(respond(skill, f"<documents>\n{found}\n</documents>\n\nQuestion: {question}\n\n"))


TOOLS: Mapping[str, Callable[[str, str, Sequence[str]], Reply]] = {
    "search_documents": search,
    "run_python": lambda skill, task, results: use_tool(recognise(skill), task, results),
}
"""By the tool's name: from skill, task and what the calls so far gave to the next turn."""
