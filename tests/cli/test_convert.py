"""`specli convert`: options to `ConvertConfig`, the report to the two streams."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specli.cli import main
from specli.convert.records import ConvertConfig, ConvertReport, OnProgress, TensorRow
from tests.support.checkpoints import CASES

REPORT = ConvertReport(
    layout="eagle3: AngelSlim / vLLM",
    architecture="eagle3",
    paths=(Path("out.gguf"),),
    tensors=(
        TensorRow(("fc.weight",), "fc.weight", (64, 192), "bf16", 24576),
        TensorRow((), "rope_freqs.weight", (32,), "f32", 128),
    ),
    borrowed=("token_embd.weight",),
    unused={"t2d": "the inverse of d2t"},
    notes=("taps layers 2, 8, 13",),
    warnings=("rope base is missing",),
    n_bytes=24704,
    seconds=0.25,
)


@pytest.fixture
def asked(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> list[ConvertConfig]:
    """Settings the converter was called with; it answers with `REPORT`."""
    configs: list[ConvertConfig] = []

    def convert(config: ConvertConfig, on_progress: OnProgress | None) -> ConvertReport:
        configs.append(config)
        return REPORT

    monkeypatch.setattr("specli.convert.run.convert", convert)
    return configs


def test_paths_go_to_stdout_and_the_summary_to_stderr(
    asked: list[ConvertConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "checkpoint"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "out.gguf\n"
    assert captured.err.splitlines() == [
        "warn: rope base is missing",
        "taps layers 2, 8, 13",
        "eagle3: AngelSlim / vLLM → eagle3",
        "2 tensors, 24.1 KiB, 0.2 s",
    ]
    assert asked == [ConvertConfig(source="checkpoint")]


def test_dry_run_lists_every_tensor(asked: list[ConvertConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "checkpoint", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "fc.weight          64×192  bf16  24.0 KiB  fc.weight",
        "rope_freqs.weight      32  f32      128 B  computed",
        "borrowed from the target: token_embd.weight",
        "unused: t2d: the inverse of d2t",
    ]


def test_report_as_json(asked: list[ConvertConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "checkpoint", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "specli.convert/1"


def test_options_reach_the_converter(asked: list[ConvertConfig]) -> None:
    arguments = (
        "src --outfile o.gguf --outtype q8_0 --target-model-dir t --no-nextn --vocab-only --model-name N "
        "--metadata m.json --remote --offline --split-max-tensors 5 --split-max-size 2G --no-tensor-first-split "
        "--dry-run --check c.gguf --target-layers 2,8,13 --rope-theta 1e6 --norm-before-residual "
        "--no-sample-from-anchor"
    )
    assert main(["convert", *arguments.split()]) == 0
    assert asked == [
        ConvertConfig(
            source="src",
            outfile=Path("o.gguf"),
            outtype="q8_0",
            target="t",
            mtp="without",
            vocab_only=True,
            model_name="N",
            metadata=Path("m.json"),
            remote=True,
            offline=True,
            split_max_tensors=5,
            split_max_bytes=2_000_000_000,
            no_tensor_first_split=True,
            dry_run=True,
            check=Path("c.gguf"),
            target_layers=(2, 8, 13),
            rope_theta=1e6,
            norm_before_residual=True,
            sample_from_anchor=False,
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--mtp", "--no-mtp"],
            'error while handling argument "--no-mtp": --mtp, --no-nextn, and --dspark are mutually exclusive\n',
        ),
        (
            ["--split-max-size", "2T"],
            'error while handling argument "--split-max-size": '
            "Invalid split size: 2T, must be a number, optionally followed by K, M, or G\n",
        ),
        (["--outtype", "q3"], 'error while handling argument "--outtype": invalid value\n'),
        (["--bigendian"], 'error while handling argument "--bigendian": not available in specli: '
         "files are little-endian\n"),
    ],
)  # fmt: skip
def test_usage_errors(
    asked: list[ConvertConfig], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["convert", "src", *arguments]) == 2
    assert capsys.readouterr().err.splitlines(keepends=True)[0] == message
    assert asked == []


SLOW = """
import sys, time
from specli.cli import main
from specli.convert import run

def say(self, name, n_bytes):
    if n_bytes:
        print("writing", flush=True)
        time.sleep(60)

run._Meter._say = say
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_leaves_nothing_behind(tmp_path: Path, signum: signal.Signals) -> None:
    CASES["qwen3"].write(tmp_path / "qwen3")
    (tmp_path / "x.gguf").write_bytes(b"old")
    arguments = ("convert", str(tmp_path / "qwen3"), "--outfile", str(tmp_path / "x.gguf"))
    with subprocess.Popen([sys.executable, "-c", SLOW, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert len(list(tmp_path.iterdir())) == 3  # the part as well
        process.send_signal(signum)
        assert process.wait(30) == 128 + signum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["qwen3", "x.gguf"]
    assert (tmp_path / "x.gguf").read_bytes() == b"old"


def test_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    """As `nohup` has it."""
    hang_up = SLOW.replace("time.sleep(60)", "os.kill(os.getpid(), signal.SIGHUP)")
    code = f"import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN){hang_up}"
    CASES["qwen3"].write(tmp_path / "qwen3")
    arguments = ("convert", str(tmp_path / "qwen3"), "--outfile", str(tmp_path / "x.gguf"))
    assert subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False).returncode == 0
    assert (tmp_path / "x.gguf").exists()
