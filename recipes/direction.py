"""Prints the source and the target language of a checkpoint, with a space between them.

    python recipes/direction.py MODEL [DIRECTION]

DIRECTION, such as eng_Latn-fra_Latn, names them if the model has several. Codes may have hyphens: pt-BR-en is pt-BR and
en, if the model has these languages.
"""

import sys
from contextlib import suppress

from nmt.checkpoint_format import read_codec
from nmt.errors import NmtError
from nmt.text.languages import listed_codes
from nmt.text.text_config import TextConfig


def languages_of(direction: str, text: TextConfig) -> tuple[str, str]:
    """Returns the languages of a direction of a model as `direction` writes them.

    Raises:
        NmtError: the model does not have the languages, or a hyphen may belong to a code or stand between two.
    """
    parts, readings = direction.split("-"), list[tuple[str, str]]()
    for cut in range(1, len(parts)):
        languages = "-".join(parts[:cut]), "-".join(parts[cut:])
        with suppress(NmtError):
            if all(languages) and text.direction(*languages):
                readings.append(languages)
    exact = [languages for languages in readings if set(languages) <= set(text.all_languages)]
    if len(exact or readings) == 1:
        return (exact or readings)[0]
    meant = " or ".join(f"{source} to {target}" for source, target in readings) or "no two languages of the model"
    raise NmtError(f"DIRECTION {direction} means {meant}; name two of {listed_codes(text.all_languages)}, as in en-de")


def main() -> None:
    """Prints the languages."""
    model, direction = sys.argv[1], "".join(sys.argv[2:])
    try:
        text = read_codec(model).config
        if text.languages and not direction:
            raise NmtError(f"{model} has several languages; set DIRECTION, for example to eng_Latn-fra_Latn")
        print(*(languages_of(direction, text) if direction else text.trained[0]))
    except NmtError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
