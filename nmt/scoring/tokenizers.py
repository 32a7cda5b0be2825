"""Chooses sacreBLEU's tokeniser for a language."""

from nmt.text.moses import CHINESE, WITHOUT_SPACES, base_language

# Tokenisers that need a morphological analyser, which sacreBLEU installs on request only.
_ANALYSERS = {"ja": "ja-mecab", "ko": "ko-mecab"}


def bleu_tokenizer(lang: str | None) -> str:
    """Returns the name of the tokeniser that BLEU uses for translations into `lang`, or `13a` without a language.

    The choice is sacreBLEU's own, except that `char` stands in for an analyser that is not installed, and is used for
    languages that are written without spaces and have no tokeniser.
    """
    language = base_language(lang or "")
    if language in CHINESE:
        return "zh"
    if language in _ANALYSERS and _is_installed(_ANALYSERS[language]):
        return _ANALYSERS[language]
    return "char" if language in WITHOUT_SPACES or language in _ANALYSERS else "13a"


def tokenizer_warning(lang: str | None) -> str | None:
    """Returns a warning if the analyser that `bleu_tokenizer` would choose is not installed, and None otherwise."""
    language = base_language(lang or "")
    if language not in _ANALYSERS or bleu_tokenizer(lang) == _ANALYSERS[language]:
        return None
    return (
        f"BLEU is computed over characters (tok:char), because sacreBLEU's tokeniser for {lang} is not installed; "
        f"install it with pip install 'sacrebleu[{language}]' for scores that can be compared with published ones"
    )


def _is_installed(tokenizer: str) -> bool:
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(tokenize=tokenizer)
    except (ImportError, RuntimeError, OSError, AssertionError):  # AssertionError: another dictionary
        return False
    return True
