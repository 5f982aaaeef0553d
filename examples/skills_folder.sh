#!/bin/sh
# Keeps a skill of Claude Code (.claude/skills) and of Codex (.agents/skills) at the champion; run it in the project's
# folder, once by hand, at login or by cron. The name of the folder is the name of the skill.
# usage: skills_folder.sh CONSUMER.PY BUCKET BENCHMARK TARGET NAME [more options of `fetch`]
set -eu
consumer=$1 bucket=$2 benchmark=$3 target=$4 name=$5
shift 5
fetch() {
    python3 "$consumer" fetch --bucket "$bucket" --benchmark "$benchmark" --target "$target" "$@"
}
fetch --out ".claude/skills/$name" --as claude-code-skill "$@"
fetch --out ".agents/skills/$name" --as skill-folder "$@"
