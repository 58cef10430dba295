"""A new table is one module and one row: added to a copy of the package, it is there wherever drafters are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import specli

MODULE = '''
"""Proposes the last token again."""

from specli.drafters.base import Draft
from specli.drafters.ngram import NgramTable


class Echo(NgramTable):
    name = "ngram-echo"

    def __init__(self, n_draft, every):
        super().__init__()
        self.max_draft, self._every = n_draft, every

    def draft(self, request):
        wanted = len(request.history) % self._every == 0
        return Draft([request.last_token] * self.max_draft if wanted else [])

    def _forget(self):
        pass

    def _learn_prompt(self, prompt):
        pass
'''

ROW = """
    TableSpec(
        name="ngram-echo",
        summary="the last token again",
        settings=(
            Setting("n_max", ("--spec-ngram-echo-n-max",), "ngram-echo: most tokens proposed", 2, low=1, high=9,
                    error="echo out of range", tries=(1, 2), is_length=True),
            Setting("every", ("--spec-ngram-echo-every",), "ngram-echo: rounds", 1, low=1, tries=(1, 2)),
        ),
        build=_table("ngram_echo", "Echo"),
        n_bytes=5 << 20,
    ),
"""

SCRIPT = """
from dataclasses import replace
from pathlib import Path

from specli.cli.options.arguments import read_command_line
from specli.cli.options.completions import bash_script
from specli.cli.options.help import help_groups
from specli.cli.options.settings import resolve
from specli.demo import MODELS
from specli.drafters import DRAFTERS
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig, SpeculationConfig
from specli.engine.load import open_engine, open_target
from specli.errors import UsageError
from specli.study.compare import Plan, StudyPrompt
from specli.study.tune import tune

def settle(*arguments):
    return resolve("generate", read_command_line("generate", arguments), {}, read_files=False)

settings = settle("--spec-type", "ngram-echo", "--spec-ngram-echo-n-max", "3")
speculation = settings.config().speculation
assert speculation.types == ("ngram-echo",)
assert speculation.tables["ngram-echo"] == {"n_max": 3, "every": 1}
assert settings.describe(["ngram-echo"]) == (
    "draft settings: --spec-ngram-echo-n-max 3 (flag), --spec-ngram-echo-every 1 (default)"
)
assert settle("--spec-ngram-echo-every", "2").warnings == [
    "--spec-ngram-echo-every has no effect: it is read by ngram-echo"
]
try:
    settle("--spec-ngram-echo-n-max", "10")
except UsageError as error:
    assert "echo out of range" in str(error)
else:
    raise AssertionError("out of range")
panel = dict(dict(help_groups("generate"))["n-gram drafters"])
assert panel["--spec-ngram-echo-n-max N"] == "ngram-echo: most tokens proposed [default: 2]"
assert "--spec-ngram-echo-n-max" in bash_script() and "ngram-cache ngram-echo" in bash_script()

target = ModelLoadConfig(MODELS[0].path, device="cpu")
request = RequestConfig(n_predict=24, sampling=SamplingConfig(temperature=0.0, seed=1))
plain = RunConfig(target, speculation=SpeculationConfig(types=("none",)), n_ctx=256)
echo = replace(plain, speculation=speculation)

def answer(config):
    with open_engine(config) as run:
        ids = run.encode("one one one one two two two")
        generation = run.generate(ids, request)
        assert list(generation)
        return generation.tokens, generation.timings, run.start_lines()

tokens, timings, lines = answer(echo)
assert tokens == answer(plain)[0]
assert timings.draft_n > 0
assert "drafting: ngram-echo (--spec-type), up to 3 tokens: the last token again" in lines
assert any("draft tables 5 MiB" in line for line in lines)

with open_target(plain) as run:
    plan = Plan(replace(request, n_predict=8), repeats=1, warmup=0, applies_template=False)
    found = tune(run, plain, [("ngram-echo", echo)], [StudyPrompt("a", "b", "one one one")], plan, seconds=20)
values = [tuple(trial.values.items()) for trial in found.types[0].trials]
assert values[0] == (("--spec-ngram-echo-n-max", 3), ("--spec-ngram-echo-every", 1))
assert len(set(values)) > 2
print("done")
"""


def test_a_new_table_is_one_module_and_one_row(tmp_path: Path) -> None:
    package = tmp_path / "specli"
    source = Path(specli.__file__).parent
    package.mkdir()
    for item in source.iterdir():
        if item.name != "drafters":
            (package / item.name).symlink_to(item)
    shutil.copytree(source / "drafters", package / "drafters", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "drafters" / "ngram_echo.py").write_text(MODULE)
    table = package / "drafters" / "__init__.py"
    marker = '    NetworkSpec(\n        name="draft-simple"'
    assert table.read_text().count(marker) == 1
    table.write_text(table.read_text().replace(marker, ROW + marker))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
