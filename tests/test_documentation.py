"""The documentation: every page has its place in the site, which a strict build makes without a network."""

import re
import subprocess
import sys
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
    pages = documentation.command_pages()
    assert (
        "(commands/translate-file.md)" in pages["commands.md"]
        and "\n## nmt trees linearize\n" in pages["commands/trees.md"]
    )
    commands = "".join(pages.values())
    assert "| `--html`, `--no-html` |  | off | Lines are HTML." in commands
    assert "| `--batch-groups` | whole number | 8 |" in commands
    python = documentation.python_reference()
    assert re.findall(r"^## nmt\.(\w+)", python, re.MULTILINE) == [name for name in nmt.__all__ if name[0] != "_"]


@pytest.mark.nightly
def test_a_broken_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    monkeypatch.setattr(documentation, "python_reference", lambda: "# x\n\n[away](nowhere.md)\n")
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


def commands_in(page: Path) -> Iterator[str]:
    """Yields the commands of nmt in the blocks of a page, each on one line."""
    for block in re.findall(r"^```(?:bash)?\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield from (part.strip() for part in re.split(r"[|&;]|\s#", line) if re.match(r"\s*nmt [a-z]", part))


@pytest.mark.parametrize("page", [ROOT / "README.md", *ROOT.glob("docs/*.md")], ids=lambda page: page.stem)
def test_commands_in_pages_have_only_options_that_exist(page: Path) -> None:
    options = documented_options()
    for command in commands_in(page):
        words = command.split()
        name = " ".join(words[1:3]) if " ".join(words[1:3]) in options else words[1]
        flags = {re.split("[=']", word)[0] for word in words if word.startswith("--")}
        assert flags <= options[name] | {"--help", "--version"}, command


def documented_options() -> dict[str, set[str]]:
    """Returns the options of each command in the reference."""
    sections = re.split(r"^#+ nmt ", "\n\n".join(documentation.command_pages().values()), flags=re.MULTILINE)[1:]
    rows = {section.split("\n")[0]: re.findall(r"^\| `--.*? \|", section, re.MULTILINE) for section in sections}
    return {command: set(re.findall(r"`(--[a-z0-9-]+)`", "".join(cells))) for command, cells in rows.items()}


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/tutorial_*.md")), ids=lambda page: page.stem)
def test_tutorials_are_scripts_that_leave_out_what_cannot_run_here(page: Path) -> None:
    command = [sys.executable, str(ROOT / "recipes" / "verify" / "tutorial_commands.py"), str(page)]
    script = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    subprocess.run(["bash", "-n"], input=script, check=True, text=True)
    assert "nmt train" in script and "hf download" not in script and "wmt14" not in script
    assert script.count("is left out") == page.read_text().count("Not run by our tests") > 0


@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/tutorial_*.md")), ids=lambda page: page.stem)
def test_tutorials_run_as_they_are_written(page: Path, tmp_path: Path) -> None:
    done = run_with(BIN, "verify_tutorials.sh", f"docs/{page.name}", RUN=tmp_path / "run")
    assert f"docs/{page.name} took" in done.stderr
