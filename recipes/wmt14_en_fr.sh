#!/usr/bin/env bash
# WMT14 English-French as the paper ran it: Europarl v7, Common Crawl, UN, News Commentary v9 and Giga (36M pairs and
# more), 32,000 word-pieces, newstest2012 and 2013 to validate, newstest2014 to test.
#
#   GPUS=8 bash recipes/wmt14_en_fr.sh big [STEP...] [-- nmt train option...]
#
# The rest is as in wmt14_en_de.sh.
set -euo pipefail
. "$(dirname "$0")/wmt14.sh"

target=fr
corpora=(
    training/europarl-v7.fr-en commoncrawl.fr-en un/undoc.2000.fr-en training/news-commentary-v9.fr-en
    giga-fren.release2.fixed
)
dev_sets=(2012 2013)
subwords=(--subword wordpiece --vocab-size "${VOCAB_SIZE:-32000}")
big=transformer_big_en_fr
wmt14 "$@"
