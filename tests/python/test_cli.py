"""The command line from outside: what it prints, what it refuses, that it repeats."""

import json
import os
import pathlib
import re
import subprocess

import pytest

SMALL = ["--preset", "small", "--scale", "8", "--ranks", "2", "--tokens", "20"]


def run_json(cli, *args):
    result = cli("run", *SMALL, "--json", *args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


def refuses(cli, *args, message):
    """One line on stderr, exit code 2, nothing on stdout."""
    result = cli(*args)
    assert result.returncode == 2, result.stdout
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("catamount: error: ")
    assert message in lines[0]


def test_help_version_info(cli):
    for args in (["--help"], ["run", "--help"], ["verify", "--help"], ["info", "--help"]):
        result = cli(*args)
        assert result.returncode == 0
        assert "Usage" in result.stdout or "Options" in result.stdout
    assert re.fullmatch(r"catamount \d+\.\d+\.\d+\n", cli("--version").stdout)
    info = json.loads(cli("info", "--json").stdout)
    assert info["limits"]["ranks"] == 64
    assert "mixtral-8x7b" in info["presets"]
    assert "backends" in cli("info").stdout


def test_run_prints_every_stage_and_error(cli):
    result = cli("run", *SMALL)
    assert result.returncode == 0, result.stderr
    for word in ("dispatch", "gate_up", "down", "send_home", "combine", "down_wgrad", "rows per rank",
                 "pulled", "sent home", "d_topk_weights", "ok"):
        assert word in result.stdout
    assert "FAIL" not in result.stdout


@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "mxfp8-plain", "fp8-block"])
def test_precisions(cli, precision):
    report = run_json(cli, "--precision", precision)
    assert report["ok"]
    bound = report["passes"][0]["errors"]["out"]["bound"]
    assert bound == (4e-3 if precision == "bf16" else 5e-3)


@pytest.mark.parametrize("preset", ["deepseek-v3", "qwen3-235b-a22b", "qwen3-30b-a3b", "mixtral-8x7b",
                                    "gpt-oss-120b", "kimi-k2"])
def test_presets(cli, preset):
    report = run_json(cli, "--preset", preset, "--scale", "64")
    assert report["ok"]
    assert len(report["passes"]) == 2


def test_same_seed_same_bits_whatever_the_threads(cli):
    def sums(*args):
        return [p["checksum"] for p in run_json(cli, "--no-verify", *args)["passes"]]

    first = sums("--seed", "3")
    assert sums("--seed", "3", "--threads", "4") == first
    assert sums("--seed", "4") != first


def test_routings_and_macrobatches(cli, tmp_path):
    assert run_json(cli, "--routing", "hot:1")["passes"][0]["imbalance"] == 2
    assert run_json(cli, "--routing", "empty-rank")["passes"][0]["rows_per_rank"] == [160, 0]
    many = run_json(cli, "--tokens", "300", "--capacity-rows", "128", "--keep", "routing")
    assert many["passes"][0]["macrobatches"] > 1 and many["ok"]
    file = tmp_path / "routing.txt"
    file.write_text("rank 0\n0:0.5 1:0.5\n-1\nrank 1\n3 1\n")
    report = run_json(cli, "--routing", f"file:{file}")
    assert report["tokens"] == [2, 1]
    assert sum(report["passes"][0]["rows_per_rank"]) == 4


def test_other_options(cli):
    assert run_json(cli, "--tokens", "0,33", "--masked", "0.5", "--router-weight", "before-down",
                    "--keep", "pre-activations-and-x")["tokens"] == [0, 33]
    forward = run_json(cli, "--no-backward")
    assert [p["pass"] for p in forward["passes"]] == ["forward"]
    assert "errors" not in run_json(cli, "--no-verify")["passes"][0]


def test_refuses_bad_arguments(cli, tmp_path):
    refuses(cli, message="subcommand")
    refuses(cli, "fly", message="fly")
    refuses(cli, "run", "--wings", message="wings")
    refuses(cli, "run", "--ranks", "many", message="many")
    refuses(cli, "run", "--preset", "gpt-9", message="gpt-9")
    refuses(cli, "run", "--precision", "fp4", message="fp4")
    refuses(cli, "run", "--keep", "all", message="pre-activations")
    refuses(cli, "run", "--router-weight", "never", message="before-down")
    refuses(cli, "run", "--ranks", "3", message="num_experts must be a positive multiple of ep_size 3")
    refuses(cli, "run", "--ranks", "0", message="--ranks")
    refuses(cli, "run", "--ranks", "2", "--tokens", "1,2,3", message="3 numbers")
    refuses(cli, "run", "--tokens", "-5", message="-5")
    refuses(cli, "run", "--masked", "2", message="[0, 1]")
    refuses(cli, "run", "--routing", "zipf", message="zipf:S")
    refuses(cli, "run", "--routing", "hot:0", message="hot:N")
    refuses(cli, "run", "--routing", "hot:1000", message="1000")
    refuses(cli, "run", "--scale", "0", message="0")
    refuses(cli, "run", "--timeout", "0", message="timeout")
    refuses(cli, "run", "--layer", "1", message="checkpoint")
    refuses(cli, "run", "--checkpoint", tmp_path, "--layer", "0", message="config.json")
    refuses(cli, "run", "--checkpoint", tmp_path, message="--layer")


@pytest.mark.parametrize("text, message", [("rank 0\n0:0.5 99:0.5\n", "99"), ("rank 1\n0\n", "rank"),
                                           ("0:x\n", "x"), ("\x00\xff", "")])
def test_refuses_broken_routing_files(cli, tmp_path, text, message):
    file = tmp_path / "routing.txt"
    file.write_text(text)
    refuses(cli, "run", *SMALL, "--routing", f"file:{file}", message=message)


def test_refuses_missing_files(cli, tmp_path):
    refuses(cli, "run", *SMALL, "--routing", f"file:{tmp_path}/none.txt", message="none.txt")
    refuses(cli, "run", "--checkpoint", tmp_path / "none", "--layer", "0", message="none")


def test_layer_that_does_not_fit_is_refused_before_it_starts(cli):
    meminfo = pathlib.Path("/proc/meminfo").read_text()
    if int(re.search(r"MemAvailable: +(\d+) kB", meminfo).group(1)) > 200e6:
        pytest.skip("this machine can hold it")
    refuses(cli, "run", "--preset", "kimi-k2", "--tokens", "1", message="scale it down")


@pytest.mark.parametrize("args, message", [
    (("--tokens", "5,"), "--tokens must be one number"),
    (("--tokens", ""), "--tokens must be one number"),
    (("--seed", "-1"), "must not be negative, got -1"),
    (("--threads", "100000"), "--threads must be in [0, 1024]"),
])
def test_numbers_out_of_range(cli, args, message):
    refuses(cli, "run", *args, message=message)


def test_output_that_cannot_be_written_is_an_error(cli):
    with open("/dev/full", "w") as full:
        done = subprocess.run([os.environ["CATAMOUNT_CLI"], "info"], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "could not be written" in done.stderr


def test_errors_are_text_whatever_the_file_holds(cli, tmp_path):
    config = {"model_type": "mixtral", "hidden_size": 8, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = b'{"a\xd8\x01":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(4))
    refuses(cli, "run", "--checkpoint", tmp_path, "--layer", "0", message="model.safetensors")
