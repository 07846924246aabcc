"""`catamount run --checkpoint`: layers of real model families against a NumPy reference."""

import numpy as np
import pytest
import safetensors.numpy

import make_checkpoints as make

TOKENS = 37
MAX_ERROR = 1e-2  # norm of the difference over the norm


@pytest.fixture(scope="module")
def layers():
    return {name: build() for name, build in make.FAMILIES.items()}


def write_hidden(path, x, dtype=np.float32):
    if path.suffix == ".npy":
        np.save(path, x.astype(dtype))
    else:
        safetensors.numpy.save_file({"hidden_states": x.astype(dtype)}, path)


def read_output(path):
    if path.suffix == ".npy":
        return np.load(path)
    return safetensors.numpy.load_file(path)["output"]


def arguments(folder, hidden, output, *more, layer=make.LAYER):
    return ("run", "--checkpoint", folder, "--layer", layer, "--hidden", hidden,
            "--output", output, *more)


def check_run(cli, layer, folder, *more, suffix=".npy", sharded=False, tokens=TOKENS):
    layer.save(folder, sharded)
    x = layer.hidden_states(tokens)
    hidden, output = folder / f"hidden{suffix}", folder / f"output{suffix}"
    write_hidden(hidden, x)
    done = cli(*arguments(folder, hidden, output, *more))
    assert done.returncode == 0, done.stderr
    got, want = read_output(output), layer.forward(x)
    assert got.shape == want.shape and got.dtype == np.float32
    error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)
    assert error <= MAX_ERROR


@pytest.mark.parametrize("sharded", [False, True], ids=["single", "sharded"])
@pytest.mark.parametrize("family", make.FAMILIES)
def test_layer(cli, layers, tmp_path, family, sharded):
    check_run(cli, layers[family], tmp_path, sharded=sharded)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("family", ["deepseek-v3-fp8", "gpt-oss-mxfp4"])
def test_ranks(cli, layers, tmp_path, family, ranks):
    check_run(cli, layers[family], tmp_path, "--ranks", ranks)


def test_fewer_tokens_than_ranks(cli, layers, tmp_path):
    check_run(cli, layers["qwen3"], tmp_path, "--ranks", 4, tokens=3)


def test_safetensors_in_and_out(cli, layers, tmp_path):
    check_run(cli, layers["mixtral"], tmp_path, suffix=".safetensors")


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_hidden_dtypes(cli, layers, tmp_path, dtype):
    layer = layers["qwen3"]
    layer.save(tmp_path, sharded=False)
    x = layer.hidden_states(TOKENS)
    write_hidden(tmp_path / "wide.npy", x)
    write_hidden(tmp_path / "other.npy", x, dtype)
    for name in ("wide", "other"):
        done = cli(*arguments(tmp_path, tmp_path / f"{name}.npy", tmp_path / f"{name}-out.npy"))
        assert done.returncode == 0, done.stderr
    # BF16 values of this size lose at most their subnormals in F16: the same numbers go in.
    wide, other = np.load(tmp_path / "wide-out.npy"), np.load(tmp_path / "other-out.npy")
    assert np.linalg.norm(wide - other) <= 1e-3 * np.linalg.norm(wide)


class TestErrors:
    """One line that names the trouble, exit code 2, no output file."""

    @pytest.fixture(autouse=True)
    def checkpoint(self, layers, tmp_path):
        self.layer, self.folder = layers["qwen3"], tmp_path
        self.layer.save(tmp_path, sharded=False)
        self.file = tmp_path / "model.safetensors"
        self.hidden, self.output = tmp_path / "hidden.npy", tmp_path / "output.npy"
        write_hidden(self.hidden, self.layer.hidden_states(4))

    def check(self, cli, *words, layer=make.LAYER):
        done = cli(*arguments(self.folder, self.hidden, self.output, layer=layer))
        assert done.returncode == 2, done.stderr
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, done.stderr
        for word in words:
            assert word in lines[0]
        assert not self.output.exists()

    def test_layer_out_of_range(self, cli):
        self.check(cli, "config.json", "3", layer=3)

    def test_dense_layer(self, cli):
        self.check(cli, "dense", layer=0)

    def test_missing_tensor(self, cli):
        self.check(cli, "model.layers.1.mlp", layer=1)

    def test_no_checkpoint(self, cli):
        (self.folder / "config.json").unlink()
        self.check(cli, "config.json")

    def test_unknown_model(self, cli):
        (self.folder / "config.json").write_text('{"model_type": "llama"}')
        self.check(cli, "llama")

    @pytest.mark.parametrize("kept", [0, 7, 100, -1])
    def test_truncated_file(self, cli, kept):
        self.file.write_bytes(self.file.read_bytes()[:kept])
        self.check(cli, "model.safetensors")

    def test_damaged_header(self, cli):
        data = self.file.read_bytes()
        self.file.write_bytes(data.replace(b"data_offsets", b"data_offsetz", 1))
        self.check(cli, "data_offset")

    def test_hidden_of_another_width(self, cli):
        np.save(self.hidden, np.zeros((4, make.HIDDEN + 8), np.float32))
        self.check(cli, str(make.HIDDEN), str(make.HIDDEN + 8))

    def test_hidden_is_no_array(self, cli):
        self.hidden.write_text("hello")
        self.check(cli, "hidden.npy")

    def test_hidden_in_fortran_order(self, cli):
        np.save(self.hidden, np.asfortranarray(np.zeros((4, make.HIDDEN), np.float32)))
        self.check(cli, "hidden.npy", "Fortran")
