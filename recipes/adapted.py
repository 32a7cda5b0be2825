"""Prints which model adapt.sh takes: `tuned`, or `averaged` with the old one.

    python recipes/adapted.py FOLDER DOMAIN...

FOLDER has the scores of the validation text, such as new-valid.tuned.json. Of the models that lose at most 0.5 BLEU on
the old domain, the one with the highest BLEU on the new domain is taken; if all lose more, the one that loses least.
"""

import json
import sys
from pathlib import Path

MOST_LOST = 0.5


def taken(bleu: dict[tuple[str, str], float]) -> str:
    """Returns the name of the model, given the BLEU of each domain and model."""
    names = ["tuned", "averaged"]
    lost = {name: bleu.get(("old", "model"), 0.0) - bleu.get(("old", name), 0.0) for name in names}
    if min(lost.values()) > MOST_LOST:
        return min(names, key=lambda name: lost[name])
    return max((name for name in names if lost[name] <= MOST_LOST), key=lambda name: bleu["new", name])


def main() -> None:
    """Prints the name, and on standard error the scores."""
    folder, *domains = sys.argv[1:]
    bleu = {}
    for domain in domains:
        for name in ("model", "tuned", "averaged"):
            scores = json.loads((Path(folder) / f"{domain}-valid.{name}.json").read_text())
            bleu[domain, name] = scores["bleu"]["score"]
            print(f"BLEU on validation text of the {domain} domain, {name}: {bleu[domain, name]:.2f}", file=sys.stderr)
    print(taken(bleu))


if __name__ == "__main__":
    main()
