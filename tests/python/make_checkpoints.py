"""Small checkpoints of one MoE layer, as the model families ship them, and what the layer computes.

Written with the `safetensors` package and NumPy alone: nothing here comes from the library under test.
Weights are rounded to the stored format first, so that the float64 reference sees what a reader sees.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import safetensors

HIDDEN, INTERMEDIATE, EXPERTS, TOPK = 192, 160, 8, 3
LAYERS, LAYER = 3, 2
FP8_BLOCK = 128
FP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def bf16_bits(values):
    """The nearest BF16 of each value, ties to even, as uint16."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def round_bf16(values):
    return from_bf16(bf16_bits(values))


def e4m3_table():
    codes = np.arange(256)
    exponent, fraction = (codes >> 3) & 15, codes & 7
    magnitude = np.where(exponent == 0, fraction * 2.0**-9, (1 + fraction / 8) * 2.0 ** (exponent - 7))
    magnitude[(codes & 127) == 127] = np.nan
    return np.where(codes >= 128, -magnitude, magnitude)


def nearest_code(values, table):
    """The code of the value in `table` nearest to each value."""
    order = np.argsort(table, kind="stable")  # NaN last
    finite = order[: np.isfinite(table).sum()]
    grid = table[finite]
    at = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    at -= np.abs(values - grid[at - 1]) < np.abs(values - grid[at])
    return finite[at].astype(np.uint8)


@dataclasses.dataclass
class Layer:
    """A layer in float64, the tensors that store it, and its config.json."""

    config: dict
    gate: np.ndarray  # [E, I, H]
    up: np.ndarray  # [E, I, H]
    down: np.ndarray  # [E, H, I]
    router: np.ndarray  # [E, H]
    score: str  # softmax, sigmoid, softmax_of_topk
    normalize: bool = False
    scaling: float = 1.0
    groups: int = 1
    topk_groups: int = 1
    router_bias: np.ndarray | None = None
    selection_bias: np.ndarray | None = None
    gate_bias: np.ndarray | None = None
    up_bias: np.ndarray | None = None
    down_bias: np.ndarray | None = None
    shared: tuple | None = None  # gate, up, down
    alpha: float = 1.0
    limit: float = np.inf
    up_offset: float = 0.0
    tensors: dict = dataclasses.field(default_factory=dict)

    # Storing.
    def store(self, name, dtype, array):
        self.tensors[f"model.layers.{LAYER}.{name}"] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data": np.ascontiguousarray(array).tobytes(),
        }

    def store_bf16(self, name, values):
        self.store(name, "bfloat16", bf16_bits(values))
        return round_bf16(values)

    def store_f32(self, name, values):
        self.store(name, "float32", values.astype(np.float32))
        return values.astype(np.float32).astype(np.float64)

    def store_fp8(self, name, values):
        """E4M3 codes with one FP32 scale a 128 x 128 tile; readers make BF16 of them."""
        rows, cols = values.shape
        tiles = -(-rows // FP8_BLOCK), -(-cols // FP8_BLOCK)
        scales = np.empty(tiles, np.float32)
        for r in range(tiles[0]):
            for c in range(tiles[1]):
                tile = values[r * FP8_BLOCK :, c * FP8_BLOCK :][:FP8_BLOCK, :FP8_BLOCK]
                scales[r, c] = np.abs(tile).max() / 448
        each = np.kron(scales, np.ones((FP8_BLOCK, FP8_BLOCK)))[:rows, :cols]
        codes = nearest_code(values / each, e4m3_table())
        self.store(name, "float8_e4m3fn", codes)
        self.store(name + "_scale_inv", "float32", scales)
        return round_bf16((e4m3_table()[codes] * each).astype(np.float32))

    def store_mxfp4(self, name, values):
        """Two E2M1 codes a byte, low half first; one E8M0 scale for 32 values."""
        blocks = values.reshape(*values.shape[:-1], -1, 32)
        largest = np.abs(blocks).max(-1)
        exponents = np.clip(np.floor(np.log2(np.maximum(largest, 1e-30))) - 2, -127, 127)
        scale = 2.0 ** exponents[..., None]
        codes = nearest_code(blocks / scale, FP4_VALUES)
        self.store(name + "_blocks", "uint8", codes[..., 0::2] | codes[..., 1::2] << 4)
        self.store(name + "_scales", "uint8", (exponents + 127).astype(np.uint8))
        return (FP4_VALUES[codes] * scale).reshape(values.shape)

    def save(self, folder, sharded):
        folder = Path(folder)
        (folder / "config.json").write_text(json.dumps(self.config))
        if not sharded:
            safetensors.serialize_file(self.tensors, folder / "model.safetensors", {"format": "pt"})
            return
        shards = {}
        for i, name in enumerate(sorted(self.tensors)):
            shards.setdefault(f"model-{i % 3 + 1:05}-of-00003.safetensors", []).append(name)
        for file, names in shards.items():
            part = {name: self.tensors[name] for name in names}
            safetensors.serialize_file(part, folder / file, {"format": "pt"})
        weight_map = {name: file for file, names in shards.items() for name in names}
        # A tensor of another layer, in a shard that was not downloaded.
        weight_map["model.layers.0.mlp.gate.weight"] = "model-00004-of-00004.safetensors"
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    # Computing.
    def route(self, x):
        """Experts [T, k], weights [T, k], and by how much each token's choice is the better one."""
        logits = x @ self.router.T
        if self.router_bias is not None:
            logits = logits + self.router_bias
        score = logits
        if self.score == "softmax":
            score = np.exp(logits - logits.max(-1, keepdims=True))
            score /= score.sum(-1, keepdims=True)
        if self.score == "sigmoid":
            score = 1 / (1 + np.exp(-logits))
        choice = score + (0 if self.selection_bias is None else self.selection_bias)
        margin = np.full(len(x), np.inf)
        if self.groups > 1:
            grouped = np.sort(choice.reshape(len(x), self.groups, -1), -1)
            group_score = grouped[..., -2:].sum(-1)
            order = np.argsort(-group_score, -1, kind="stable")
            ranked = np.take_along_axis(group_score, order, -1)
            margin = ranked[:, self.topk_groups - 1] - ranked[:, self.topk_groups]
            allowed = np.zeros_like(group_score, bool)
            np.put_along_axis(allowed, order[:, : self.topk_groups], True, -1)
            choice = np.where(np.repeat(allowed, EXPERTS // self.groups, -1), choice, -np.inf)
        order = np.argsort(-choice, -1, kind="stable")
        ranked = np.take_along_axis(choice, order, -1)
        margin = np.minimum(margin, ranked[:, TOPK - 1] - ranked[:, TOPK])
        ids = order[:, :TOPK]
        weights = np.take_along_axis(score, ids, -1)
        if self.score == "softmax_of_topk":
            weights = np.exp(weights - weights.max(-1, keepdims=True))
        if self.normalize or self.score == "softmax_of_topk":
            weights = weights / weights.sum(-1, keepdims=True)
        return ids, weights * self.scaling, margin

    def hidden_states(self, tokens, seed=0):
        """BF16 values, of tokens whose experts do not depend on the last bits of a sum."""
        random = np.random.default_rng(seed)
        x = round_bf16(random.standard_normal((4 * tokens + 64, HIDDEN)))
        margin = self.route(x)[2]
        x = x[margin > 1e-3][:tokens]
        assert len(x) == tokens
        return x

    def activation(self, gate, up):
        gate = np.minimum(gate, self.limit)
        up = np.clip(up, -self.limit, self.limit)
        return gate / (1 + np.exp(-self.alpha * gate)) * (up + self.up_offset)

    def forward(self, x):
        ids, weights, _ = self.route(x)
        out = np.zeros_like(x)
        for t, token in enumerate(x):
            for e, weight in zip(ids[t], weights[t]):
                gate, up = self.gate[e] @ token, self.up[e] @ token
                if self.gate_bias is not None:
                    gate, up = gate + self.gate_bias[e], up + self.up_bias[e]
                y = self.down[e] @ self.activation(gate, up)
                out[t] += weight * (y if self.down_bias is None else y + self.down_bias[e])
        if self.shared is not None:
            gate, up, down = self.shared
            out += self.activation(x @ gate.T, x @ up.T) @ down.T
        return out


def config(model_type, **more):
    return {
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_experts_per_tok": TOPK,
        "torch_dtype": "bfloat16",
        **more,
    }


def random_layer(seed, **fields):
    random = np.random.default_rng(seed)

    def matrix(*shape):
        return random.standard_normal(shape) / np.sqrt(shape[-1])

    return random, Layer(
        gate=matrix(EXPERTS, INTERMEDIATE, HIDDEN),
        up=matrix(EXPERTS, INTERMEDIATE, HIDDEN),
        down=matrix(EXPERTS, HIDDEN, INTERMEDIATE),
        router=matrix(EXPERTS, HIDDEN),
        **fields,
    )


def store_experts(layer, prefix, names, store):
    for e in range(EXPERTS):
        for name, weights in zip(names, (layer.gate, layer.up, layer.down)):
            weights[e] = store(f"{prefix}.{e}.{name}.weight", weights[e])


HF_NAMES = ("gate_proj", "up_proj", "down_proj")


def mixtral():
    _, layer = random_layer(
        1,
        config=config("mixtral", intermediate_size=INTERMEDIATE, num_local_experts=EXPERTS),
        score="softmax",
        normalize=True,
    )
    store_experts(layer, "block_sparse_moe.experts", ("w1", "w3", "w2"), layer.store_bf16)
    layer.router = layer.store_bf16("block_sparse_moe.gate.weight", layer.router)
    return layer


def qwen3_moe(fused=False, normalize=True):
    _, layer = random_layer(
        2,
        config=config(
            "qwen3_moe",
            intermediate_size=3 * INTERMEDIATE,
            moe_intermediate_size=INTERMEDIATE,
            num_experts=EXPERTS,
            norm_topk_prob=normalize,
            decoder_sparse_step=1,
            mlp_only_layers=[0],
        ),
        score="softmax",
        normalize=normalize,
    )
    if fused:
        both = layer.store_bf16("mlp.experts.gate_up_proj", np.concatenate((layer.gate, layer.up), 1))
        layer.gate, layer.up = both[:, :INTERMEDIATE], both[:, INTERMEDIATE:]
        layer.down = layer.store_bf16("mlp.experts.down_proj", layer.down)
    else:
        store_experts(layer, "mlp.experts", HF_NAMES, layer.store_bf16)
    layer.router = layer.store_bf16("mlp.gate.weight", layer.router)
    return layer


def deepseek_v3(fp8, model_type="deepseek_v3"):
    groups, topk_groups = (4, 2) if model_type == "deepseek_v3" else (1, 1)
    settings = config(
        model_type,
        moe_intermediate_size=INTERMEDIATE,
        n_routed_experts=EXPERTS,
        n_shared_experts=1,
        n_group=groups,
        topk_group=topk_groups,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        first_k_dense_replace=1,
        moe_layer_freq=1,
    )
    if fp8:
        settings["quantization_config"] = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        }
    random, layer = random_layer(
        3,
        config=settings,
        score="sigmoid",
        normalize=True,
        scaling=2.5,
        groups=groups,
        topk_groups=topk_groups,
    )
    store = layer.store_fp8 if fp8 else layer.store_bf16
    store_experts(layer, "mlp.experts", HF_NAMES, store)
    layer.shared = tuple(
        store(f"mlp.shared_experts.{name}.weight", random.standard_normal(shape) / np.sqrt(shape[-1]))
        for name, shape in zip(HF_NAMES, ((INTERMEDIATE, HIDDEN),) * 2 + ((HIDDEN, INTERMEDIATE),))
    )
    layer.router = layer.store_bf16("mlp.gate.weight", layer.router)
    layer.selection_bias = layer.store_f32(
        "mlp.gate.e_score_correction_bias", 0.2 * random.standard_normal(EXPERTS)
    )
    return layer


def gpt_oss(mxfp4):
    random, layer = random_layer(
        4,
        config=config(
            "gpt_oss",
            intermediate_size=INTERMEDIATE,
            num_local_experts=EXPERTS,
            experts_per_token=TOPK,
            swiglu_limit=1.5,
        ),
        score="softmax_of_topk",
        alpha=1.702,
        limit=1.5,
        up_offset=1.0,
    )
    both = np.stack((layer.gate, layer.up), 2).reshape(EXPERTS, 2 * INTERMEDIATE, HIDDEN)
    if mxfp4:
        both = layer.store_mxfp4("mlp.experts.gate_up_proj", both)
        layer.down = layer.store_mxfp4("mlp.experts.down_proj", layer.down)
    else:
        both = layer.store_bf16("mlp.experts.gate_up_proj", both.transpose(0, 2, 1)).transpose(0, 2, 1)
        layer.down = layer.store_bf16("mlp.experts.down_proj", layer.down.transpose(0, 2, 1))
        layer.down = layer.down.transpose(0, 2, 1)
    layer.gate, layer.up = both[:, 0::2], both[:, 1::2]
    bias = layer.store_bf16(
        "mlp.experts.gate_up_proj_bias", 0.3 * random.standard_normal((EXPERTS, 2 * INTERMEDIATE))
    )
    layer.gate_bias, layer.up_bias = bias[:, 0::2], bias[:, 1::2]
    layer.down_bias = layer.store_bf16(
        "mlp.experts.down_proj_bias", 0.3 * random.standard_normal((EXPERTS, HIDDEN))
    )
    layer.router = layer.store_bf16("mlp.router.weight", layer.router)
    layer.router_bias = layer.store_bf16("mlp.router.bias", 0.3 * random.standard_normal(EXPERTS))
    return layer


FAMILIES = {
    "mixtral": mixtral,
    "qwen3": qwen3_moe,
    "qwen3-not-normalized": lambda: qwen3_moe(normalize=False),
    "qwen3-fused": lambda: qwen3_moe(fused=True),
    "deepseek-v3": lambda: deepseek_v3(fp8=False),
    "deepseek-v3-fp8": lambda: deepseek_v3(fp8=True),
    "kimi-k2-fp8": lambda: deepseek_v3(fp8=True, model_type="kimi_k2"),
    "gpt-oss": lambda: gpt_oss(mxfp4=False),
    "gpt-oss-mxfp4": lambda: gpt_oss(mxfp4=True),
}
