#!/usr/bin/env bash
# WMT14 English-French as in the paper. Trains on Europarl v7, Common Crawl, UN, News Commentary v9 and Giga (more than
# 36M pairs) with 32,000 word-pieces, validates on newstest2012 and newstest2013, and tests on newstest2014.
#
#   CUDA_VISIBLE_DEVICES=0 bash recipes/wmt14_en_fr.sh [base|big] [STEP...] [-- nmt train option...]
#
# Estimates: 60 GB of disk with the archives, 4 to 8 hours of a core to preprocess, and 3 GB of RAM for the word-pieces,
# which are trained on 500,000 lines of each language. Everything else is as in wmt14_en_de.sh.
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
