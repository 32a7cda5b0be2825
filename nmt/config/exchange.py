"""The options of imports and exports."""

from dataclasses import dataclass
from typing import Literal

from nmt.config.options import Config, Count, option


@dataclass(frozen=True, kw_only=True)
class Facts(Config, panel="Model card"):
    """What only the user knows about a model. Its card has a section for each fact that is given.

    `nmt export` reads the file of `scores`; for the card, they are its text.
    """

    data: str | None = option(None, "What the model was trained on.")
    license: str | None = option(None, "Licence and attribution of the model.")
    scores: str | None = option(None, "File with any text, such as the output of nmt score.")


@dataclass(frozen=True, kw_only=True)
class SelectionConfig(Config, panel="Models of many languages"):
    """What of a model of many languages is imported, and what is added to it."""

    language_tokens: Literal["auto", "both_sides", "behind_source", "target_on_source"] = option(
        "auto",
        "Where the tokens of languages stand: both_sides, as in M2M-100 and NLLB-200; behind_source, as in NLLB-200 "
        "with legacy_behaviour; or target_on_source, as in SMaLL-100. auto is what the folder says.",
    )
    languages: str | None = option(None, "The only languages to keep, such as eng_Latn,deu_Latn; by default, all.")
    pieces_of: tuple[str, ...] = option(
        (),
        "Makes the model smaller: file of text of your languages. All pieces that its segmentation does not need are "
        "left out, except single characters. May be given several times.",
    )
    add_language: tuple[str, ...] = option(
        (),
        "A new language, and a related language of the model, which its token starts from, such as tyv_Cyrl=kaz_Cyrl. "
        "May be given several times.",
    )
    add_pieces: tuple[str, ...] = option(
        (), "File of text that the model gets new pieces for. May be given several times."
    )
    pieces: Count = option(8000, "The most new pieces of --add-pieces.", needs="add_pieces")
    unchanged: tuple[str, ...] = option(
        (),
        "With --add-pieces: file of text in the languages that the model knows already. No new piece is taken that "
        "would change how this text is cut. The share of its lines that keep their pieces is printed. May be given "
        "several times.",
        needs="add_pieces",
    )
