#!/usr/bin/env bash
# Runs the commands of the tutorials as they were last committed, in a fresh clone of this repository, and prints the times.
#
#   bash recipes/verify_tutorials.sh [PAGE...]
#
# PAGE is one of docs/tutorial_*.md (default all). RUN=folder receives the clone (default runs/verify-tutorials). Blocks marked
# `bash`, and what a tutorial says is not run by tests, are left out. Repeats everything.
set -euo pipefail
. "$(dirname "$0")/common.sh"

run_dir=$(path_or "${RUN:-}" runs/verify-tutorials)
pages=("$@")
[ $# -gt 0 ] || pages=(docs/tutorial_*.md)
for page in "${pages[@]}"; do
    [ -e "$page" ] || fail "$page does not exist; name a page such as docs/tutorial_company.md"
done
set_up_environment
export ENVIRONMENT=active
[ ! -e "$run_dir" ] || [ -e "$run_dir/commands.sh" ] ||
    fail "$run_dir exists already and is not a run of this recipe; set RUN to another folder, or remove it"
rm -rf "$run_dir"
run git clone --quiet . "$run_dir"
for page in "${pages[@]}"; do
    python recipes/verify/tutorial_commands.py "$run_dir/$page" > "$run_dir/commands.sh"
    (cd "$run_dir" && bash commands.sh) || fail "the commands of $page failed; see the message above"
done
