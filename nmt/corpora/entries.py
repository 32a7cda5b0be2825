"""What corpus files have: entries, whose texts translate each other. Which of these texts are pairs."""

from collections import Counter
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from nmt.config import CorpusConfig
from nmt.errors import NmtError
from nmt.text.languages import base_language, likeliest

Languages = tuple[str, str]  # source and target language
# The languages of texts as the file calls them, or "" if it does not, and the texts, which translate each other.
Entry = tuple[tuple[str, ...], Sequence[str]]
# Stands in texts for what XML does not allow. Unicode has no character of this number.
FORBIDDEN = "\ufdd0"


class CorpusFile(NamedTuple):
    """A file that is being read."""

    file: IO[bytes]
    name: str  # what messages call it
    config: CorpusConfig
    languages: Sequence[str]  # those that are asked for
    left_out: Counter[str]  # how often something is left out, by reason

    def keeps(self, score: Any, where: str, advice: str) -> bool:
        """Returns whether a score is not below --least-score, or counts it.

        Raises:
            NmtError: the score is no number. The message names the place and ends with the advice.
        """
        least = self.config.least_score
        if least is None:
            return True
        try:
            is_kept = float(score) >= least
        except (TypeError, ValueError) as error:
            raise NmtError(f"{where} has the score {score!r:.40}, which is not a number; {advice}") from error
        if not is_kept:
            self.left_out[f"with a score below {least}"] += 1
        return is_kept


def choose(directions: Sequence[Languages], codes: tuple[str, ...]) -> tuple[dict[Languages, tuple[int, int]], int]:
    """Returns which texts of an entry with these codes are pairs. A text without a code may be in any language.

    Returns:
        The positions of source and target for each direction that the entry has, and how many other texts are in
        these languages too, such as en-US beside en-GB.
    """
    chosen, unknown = dict[Languages, tuple[int, int]](), [i for i, code in enumerate(codes) if not code]
    for direction in directions:
        fitting = [[codes.index(code) for code in likeliest(lang, codes)] for lang in direction]
        sides = dict[int, int]()
        # Of pt and pt-BR, the one that fewer texts may be in chooses first, or the one that a text names.
        for side in sorted((0, 1), key=lambda side: (len(fitting[side]) or len(codes), direction[side] not in codes)):
            sides[side] = next((i for i in [*fitting[side], *unknown] if i not in sides.values()), -1)
        if -1 not in sides.values():
            chosen[direction] = sides[0], sides[1]
    used = {position for positions in chosen.values() for position in positions}
    languages = {base_language(codes[position]) for position in used}
    return chosen, sum(base_language(code) in languages and i not in used for i, code in enumerate(codes))
