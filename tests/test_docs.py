"""The documentation is whole: what code and pages cite is there, commands parse, and records have no nameless field."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from specli.cli import main
from specli.cli.options import OPTIONS
from specli.cli.options.arguments import read_command_line
from specli.gguf.file import GGUFFile
from tests.support.checkpoints import CASES

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
SOURCES = [
    path
    for folder in ("specli", "tests")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".c", ".h", ".sh"} and path != Path(__file__)
]
COMMANDS = [
    shlex.split(line)[1:]
    for page in PAGES
    for fence in re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for line in fence.splitlines()
    if line.startswith("specli ")
]
# A page and the sections or entries named right behind it: "docs/targets.md §§2.3, 2.4", "docs/faults.md D1, D13".
CITATION = re.compile(r"((?:[\w./-]*/)?[\w-]+\.md)(?:\s*§+([\d., –-]*\d))?(?:,?\s((?:[A-Z]\d+(?:, | and )?)+))?")
OTHERS = {"README.md", "LICENSE.md"}  # names of files that the program reads or ships


def headings(page: Path) -> set[str]:
    """Numbers of a page's sections, and first words of its table rows: what a citation can point to."""
    text = page.read_text(encoding="utf-8")
    return set(re.findall(r"^#+ ([\d.]*\d)", text, flags=re.MULTILINE)) | set(
        re.findall(r"^\| ([A-Z]\d+) \|", text, flags=re.MULTILINE)
    )


def faults(text: str, folder: Path = ROOT) -> list[str]:
    """Citations of pages or sections that are not there, of a file in `folder`."""
    found = []
    for name, sections, entries in CITATION.findall(text):
        page = next((place for place in (ROOT / name, folder / name) if place.is_file()), ROOT / name)
        if Path(name).name in OTHERS:
            continue
        if not page.is_file():
            found.append(f"{name} is not in the repository")
            continue
        wanted = re.findall(r"\d[\d.]*", sections.replace("–", " ").replace("-", " ")) + re.findall(r"\w+", entries)
        found += [
            f"{name} has no {part}" for part in wanted if part.rstrip(".") not in headings(page) and part != "and"
        ]
    return found


def test_code_cites_what_is_there() -> None:
    found = []
    for path in SOURCES:
        text = re.sub(r"\n\s*(?:# |\* )?", " ", path.read_text(encoding="utf-8"))  # may run over a line's end
        found += [f"{path.relative_to(ROOT)}: {fault}" for fault in faults(text, path.parent)]
    assert found == []


def test_missing_page_and_section_are_found() -> None:
    assert faults("see docs/nowhere.md") == ["docs/nowhere.md is not in the repository"]
    assert faults("see docs/targets.md §§2.3, 9.9") == ["docs/targets.md has no 9.9"]
    assert faults("docs/faults.md D1, Z9: short after long") == ["docs/faults.md has no Z9"]
    assert faults("see docs/targets.md §2.3, README.md") == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    paths = re.findall(r"`((?:specli|tests|docs|man|completions)/[a-z\d_/.]*)`", text)
    there = [(page.parent / link).exists() for link in links] + [(ROOT / path).exists() for path in paths]
    assert all(there), [name for name, found in zip([*links, *paths], there, strict=True) if not found]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_parses(command: list[str]) -> None:
    read_command_line(command[0], command[1:], max_operands=1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_named_exist(page: Path) -> None:
    known = {spelling for option in OPTIONS for spelling in option.spellings}
    named = set(re.findall(r"`(--?[a-z][\w-]+)", page.read_text(encoding="utf-8")))
    assert named - known - {"--help"} == set()


RECORDS = {
    "run": "generate {demo} -n 12 --trace --logprobs 1 -p x",
    "stats": "stats {demo} -n 8 --n-prompts 1 --repeat 1",
    "tune": "stats {demo} -n 8 --n-prompts 1 --tune --tune-seconds 1",
    "synth": "synth {demo} -n 8 --n-prompts 1 --spec-synth-len 2",
    "check": "check -m demo -md demo --spec-type draft-eagle3",
    "replay": "stats -m demo --spec-type ngram-map-k --replay {text}",
    "convert": "convert {checkpoint} --dry-run",
}
FREE = ("settings", "metadata", "unused", "verify_ms", "values", "rows")  # their keys are options, names or numbers


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_of_a_record_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    def names(value: object) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(names, value))
        if not isinstance(value, dict):
            return set()
        return set(value) | names([item for key, item in value.items() if key not in FREE])

    checkpoint, text = tmp_path / "llama", tmp_path / "text"
    CASES["llama"].write(checkpoint)
    text.write_text("the cat sat on the mat and the cat sat on the mat", encoding="utf-8")
    demo = "-m demo -md demo --spec-type draft-eagle3 --temp 0 -t 1 -td 1"
    command = RECORDS[name].format(demo=demo, checkpoint=checkpoint, text=text)
    assert main([*command.split(), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    explained = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")))
    assert record["schema"] == f"specli.{name}/1"
    assert names(record) - explained == set()


@pytest.mark.parametrize("name", ["eagle3", "dflash", "dspark", "mtp"])
def test_keys_and_tensors_of_shipped_draft_networks_are_explained(name: str) -> None:
    page = (ROOT / "docs" / "draft-networks.md").read_text(encoding="utf-8")
    shared = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    with GGUFFile.open(ROOT / "specli" / "demo" / "data" / f"{name}.gguf") as file:
        prefix = f"{file.architecture}."
        names = list(file.metadata.keys())
        tensors = [tensor for tensor in file.tensors if name != "mtp" or ".nextn." in tensor]
    keys = [key for key in names if key.startswith(prefix) and (name != "mtp" or ".nextn_" in key)]
    block = "blk.0." if name == "eagle3" else "blk.i."
    unnamed = [tensor for tensor in tensors if f"`{re.sub(r'^blk[.][0-9]+[.]', block, tensor)}`" not in page]
    unnamed += [key for key in keys if f"`{key}`" not in page and f"`A.{key.removeprefix(prefix)}`" not in shared]
    assert unnamed == []
