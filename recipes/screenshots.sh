#!/usr/bin/env bash
# Makes the pictures of README.md and of the documentation, light and dark, from a run of quickstart.sh: the page of the
# service, the report of the training, and a terminal from the corpus to the translation.
#
#   bash recipes/screenshots.sh [OUT]
#
# OUT is the folder of the pictures (default docs/pictures). MODEL=checkpoint or name of a published model translates on
# the page (default firefox:en-pt). RUN=folder receives a run of quickstart.sh (default runs/screenshots), unless it has a
# finished one of this recipe. Needs Chromium. Repeats the pictures.
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# -le 1 ] || fail "screenshots.sh takes one folder, but was given: $*"
run_dir=$(path_or "${RUN:-}" runs/screenshots)
output=$(path_or "${1:-}" docs/pictures)
command -v chromium > /dev/null || fail "chromium was not found; install it (apt-get install chromium on Debian, Ubuntu)"
set_up_environment
[ ! -e "$run_dir" ] || [ -e "$run_dir/quickstart.log" ] ||
    fail "$run_dir exists already and is not a run of this recipe; set RUN to another folder"
if ! grep -q '^Translate a sentence' "$run_dir/quickstart.log" 2> /dev/null; then
    rm -rf "$run_dir"
    mkdir -p "$run_dir"
    RUN=$(realpath "$run_dir") bash recipes/quickstart.sh 2>&1 | tee "$run_dir/quickstart.log"
fi
run nmt report "$run_dir/model" --name quickstart --output "$run_dir/report.html"
run python recipes/screenshots.py "$run_dir" "$output" "${MODEL:-firefox:en-pt}"
