"""An OpenAI call with the champion as the system message: `python openai_call.py BUCKET BENCHMARK TARGET QUESTION`.

Beside it: consumer.py. The address and the key of the model are OPENAI_BASE_URL and OPENAI_API_KEY, those of S3 are
boto3's own variables.
"""

import sys

import openai
from consumer import SkillClient


def main() -> None:
    """Answer one question."""
    bucket, benchmark, target, question = sys.argv[1:]
    skills = SkillClient(bucket, benchmark, target)
    # In a service: keep `skills`, and call get() before a request, or watch() in a thread.
    skill = skills.get()
    if skill.problem:
        sys.stderr.write(f"{skill.version}, confirmed {skill.age:.0f} s ago: {skill.problem}\n")
    completion = openai.OpenAI().chat.completions.create(
        model=target.partition(":")[2],
        messages=[{"role": "system", "content": skill.text}, {"role": "user", "content": question}],
        # So that an answer can be traced to the skill behind it.
        extra_headers={"X-Skill-Version": skill.version},
    )
    sys.stdout.write(f"{completion.choices[0].message.content}\n")


if __name__ == "__main__":
    main()
