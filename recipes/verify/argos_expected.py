"""Translates standard input with the model in an installed package of Argos Translate, and the text processing of nmt.

    python argos_expected.py CHECKPOINT PACKAGE_FOLDER < INPUT > OUTPUT

CTranslate2 gets the settings of Argos Translate 1.11.0.
"""

import sys

import ctranslate2

import nmt


def main() -> None:
    checkpoint, folder = sys.argv[1:]
    codec = nmt.load_checkpoint(checkpoint).codec
    translator = ctranslate2.Translator(f"{folder}/model", compute_type="auto", inter_threads=1, intra_threads=0)
    for line in sys.stdin:
        (ids,) = codec.encode_source([line.removesuffix("\n")])
        (result,) = translator.translate_batch(
            [codec.source.pieces(ids)],
            beam_size=4,
            length_penalty=0.2,
            replace_unknowns=True,
            max_batch_size=32,
            batch_type="tokens",
        )
        (text,) = codec.decode_target([codec.target.ids(result.hypotheses[0])])
        print(text.replace("_", " "))


main()
