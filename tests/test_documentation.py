"""The documentation: every page has its place in the site, which a strict build makes without a network."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stand_ins import BIN, ROOT, run_with

import nmt

import documentation  # isort: skip # `stand_ins` has added its folder to the path

# Pages of the site that are not files of docs/.
MADE = {"commands.md", "python_reference.md", *documentation.PAGES.values()}


def entries(navigation: Any) -> Iterator[str]:
    """Yields the pages of a part of the navigation."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for part in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from entries(part)


def test_every_page_is_in_the_navigation() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(entries(project["nav"])) == sorted({path.name for path in ROOT.glob("docs/*.md")} | MADE)


def test_the_site_is_built_from_pages_without_broken_links_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    documentation.main(tmp_path)
    pages = {path.name: path.read_text() for path in tmp_path.glob("site/*.html")}
    assert {name.replace(".md", ".html") for name in MADE} <= set(pages)
    for name, page in pages.items():
        loaded = re.findall(r"""<(?:script|img|source|iframe)[^>]* (?:src|srcset)=["']?([^"' >]+)""", page)
        loaded += re.findall(r"""<link[^>]* rel=["']?(?:stylesheet|preload|icon)[^>]*? href=["']?([^"' >]+)""", page)
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], name
    assert "Canada" in (tmp_path / "site" / "search.json").read_text()


def test_the_references_have_all_options_and_public_names() -> None:
    commands = documentation.command_reference()
    assert "\n## nmt translate-file\n" in commands and "\n### nmt trees linearize\n" in commands
    assert "| `--html`, `--no-html` |  | off | Lines are HTML." in commands
    assert "| `--batch-groups` | whole number | 8 |" in commands
    python = documentation.python_reference()
    assert re.findall(r"^## nmt\.(\w+)", python, re.MULTILINE) == [name for name in nmt.__all__ if name[0] != "_"]


@pytest.mark.nightly
def test_a_broken_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    monkeypatch.setattr(documentation, "command_reference", lambda: "# x\n\n[away](nowhere.md)\n")
    with pytest.raises(SystemExit, match="the site was not built"):
        documentation.main(tmp_path)


def test_pictures_exist_and_are_small() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    pictures = {
        page.parent / name
        for page in pages
        for name in re.findall(r'(?:src|srcset)="([^"]+)"', page.read_text(encoding="utf-8"))
    }
    assert pictures == set(ROOT.glob("docs/pictures/*"))
    assert sum(picture.stat().st_size for picture in pictures) < 300_000


@pytest.mark.nightly
def test_pictures_are_made_from_a_run(tmp_path: Path) -> None:
    done = run_with(BIN, "screenshots.sh", str(tmp_path / "pictures"), RUN=tmp_path / "run")
    assert "BLEU" in done.stdout
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {p.name for p in ROOT.glob("docs/pictures/*")}
    assert "$ nmt train" in re.sub("&#160;", " ", (tmp_path / "pictures" / "terminal-light.svg").read_text())


@pytest.mark.parametrize("page", [*ROOT.glob("docs/*.md"), ROOT / "recipes" / "README.md"], ids=lambda page: page.stem)
def test_a_page_says_for_whom_it_is_and_what_comes_next(page: Path) -> None:
    title, blank, first, *_, last = page.read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert title.startswith("# ") and not blank
    assert first.startswith("This page is for ")
    assert re.match(r"Next: .*\]\(.*\.$", last)
