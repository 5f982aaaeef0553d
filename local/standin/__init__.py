"""The offline stand-in for a model provider. It is no language model.

It serves chat completions, responses and messages to machines without a provider key, so that a whole training can run
and be tested. As target it is a deterministic reader that ranks phrases of the documents in a SearchQA prompt, or
lettered choices by how they are worded; directives that it recognises in the skill's wording switch the parts of its
scoring on and off. It reads skill and task out of what an agent CLI sends, and calls the tools of a benchmark. As
optimizer it answers every stage: it tries on the trajectories of a request which directives would have helped, and
proposes edits, notes, guidance and whole skills, some right, some harmful, some redundant. It holds no facts, answers
or data; every answer is a pure function of the request. Scores reached with it say that the machinery works, and
nothing about any language model or about the worth of a skill.
"""
