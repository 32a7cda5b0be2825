#!/usr/bin/env bash
# Makes a small model that translates Canada's acts and regulations from English to French, from the public repository
# of the Department of Justice to the service. The extracted text is raw; corpus_to_service.sh does the rest.
#
#   bash recipes/laws_en_fr.sh [--prepare] [--hours H] [-- nmt train option...]
#
# --prepare only clones the repository and extracts the text. REPOSITORY=address or folder replaces the public
# repository. RUN=folder receives all files (default runs/laws). --hours and the options after --, and
# settings such as VOCAB_SIZE, go to corpus_to_service.sh. Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

repository=${REPOSITORY:-https://github.com/justicecanada/laws-lois-xml}
[[ $repository == *:* ]] || repository=$(path_or "$repository" '')
run_dir=$(path_or "${RUN:-}" runs/laws)
clone=$run_dir/laws-lois-xml text=$run_dir/text
attribution="Contains information licensed under the Open Government Licence – Canada."
if [ "${1:-}" = --prepare ]; then
    prepare=yes
    shift
fi
parse_hours "usage: laws_en_fr.sh [--prepare] [--hours H] [-- nmt train option...]" "$@"

clone_repository() { # its argument is for the record of unless_there
    rm -rf "$clone.part"
    git clone --quiet --depth 1 "$repository" "$clone.part" ||
        fail "$repository could not be cloned; run this again, or give a clone with REPOSITORY=folder"
    mv "$clone.part" "$clone"
}
extract() {
    rm -rf "$text.part"
    python recipes/laws.py "$clone" "$text.part"
    mv "$text.part" "$text"
}

set_up_environment
mkdir -p "$run_dir"
unless_there "$clone" clone_repository REPOSITORY="$repository"
unless_there "$text" extract
[ -z "${prepare:-}" ] || exit 0
RUN=$run_dir/service VALID=$text/valid TEST=$text/test LICENCE=${LICENCE:-$attribution} TOKENIZER=${TOKENIZER:-moses} \
    ENVIRONMENT=active \
    bash recipes/corpus_to_service.sh en fr "$text/train" "$@"
