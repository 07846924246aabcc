"""Times the MoE layer as it is usually written in PyTorch, beside ours on the same GPU.

Usage: torch_layer.py BENCH_FORWARD [--repeats N] [--commit C] [--no-compile] [--filter TEXT]

BENCH_FORWARD is the program of that name; its --list says what the layers are, and it is run just
before and just after PyTorch's turn, so that both meet the same chip in the same state. Prints
JSON lines like BENCH_FORWARD's, with the faster of eager and torch.compile as the reference.
Needs a torch that has grouped_mm on Hopper (2.8 or newer).
"""

import argparse
import json
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F

grouped_mm = getattr(F, "grouped_mm", None) or torch._grouped_mm


class TorchMoe:
    """argsort by expert, two grouped GEMMs, SwiGLU, weighted index_add: BF16, forward only."""

    def __init__(self, case):
        device = torch.device("cuda")
        torch.manual_seed(0)
        hidden, inter, experts = case["hidden"], case["intermediate"], case["experts"]

        def weights(*shape):
            w = torch.randn(shape, device=device, dtype=torch.bfloat16)
            return w.mul_(shape[-1] ** -0.5)

        self.experts = experts
        self.topk = case["topk"]
        self.gate_up = weights(experts, 2 * inter, hidden)
        self.down = weights(experts, hidden, inter)
        self.biased = case["biases"]  # the gpt-oss form: biases, clamp, alpha
        if self.biased:
            self.bias_gate_up = weights(experts, 2 * inter)
            self.bias_down = weights(experts, hidden)

    def __call__(self, x, topk_idx, topk_weights):
        """x [T, H] BF16, topk_idx [T, K] int64, topk_weights [T, K] FP32 -> [T, H] BF16."""
        experts = topk_idx.flatten()
        order = torch.argsort(experts, stable=True)
        token = order // self.topk
        ends = torch.bincount(experts, minlength=self.experts).cumsum(0).to(torch.int32)
        gate_up = grouped_mm(x[token], self.gate_up.transpose(-2, -1), offs=ends)
        if self.biased:
            sorted_experts = experts[order]
            gate_up = gate_up + self.bias_gate_up[sorted_experts]
        gate, up = gate_up.chunk(2, dim=-1)
        if self.biased:
            gate = gate.clamp(max=7.0)
            h = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        else:
            h = F.silu(gate) * up
        y = grouped_mm(h, self.down.transpose(-2, -1), offs=ends)
        if self.biased:
            y = y + self.bias_down[sorted_experts]
        weighted = y * topk_weights.flatten()[order, None].to(torch.bfloat16)
        return torch.zeros_like(x).index_add_(0, token, weighted)


def median_ms(work, repeats):
    for _ in range(5):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def ours(program, case, args):
    """BENCH_FORWARD's line for a layer."""
    command = [program, "--filter", f"{case['case']}/plain", "--repeats", str(args.repeats)]
    command += ["--commit", args.commit]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_case(case, args):
    before = ours(args.program, case, args)
    layer = TorchMoe(case)
    x = torch.randn(case["tokens"], case["hidden"], device="cuda", dtype=torch.bfloat16)
    scores = torch.rand(case["tokens"], case["experts"], device="cuda")
    topk_idx = scores.topk(case["topk"]).indices
    topk_weights = torch.rand(case["tokens"], case["topk"], device="cuda")
    inputs = (x, topk_idx, topk_weights)
    forms = {"eager": layer}
    if args.compile:
        forms["compiled"] = torch.compile(layer.__call__)
    with torch.no_grad():
        times = {name: median_ms(lambda f=form: f(*inputs), args.repeats)
                 for name, form in forms.items()}
    del layer, x, scores, topk_idx, topk_weights, inputs, forms
    torch.cuda.empty_cache()
    after = ours(args.program, case, args)
    mine = statistics.mean([before["median_ms"], after["median_ms"]])
    best = min(times.values())
    line = {key: before[key] for key in
            ("date", "commit", "gpu", "driver", "case", "pass", "precision", "ep", "variant")}
    line.update(median_ms=mine, reference=f"torch {torch.__version__}", reference_ms=best,
                ratio=best / mine, **{f"torch_{name}_ms": t for name, t in times.items()})
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", metavar="BENCH_FORWARD")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_layer.py: torch sees no GPU")
    lines = subprocess.run([args.program, "--list"], check=True, capture_output=True, text=True)
    for case in map(json.loads, lines.stdout.splitlines()):
        if case["variant"] == "plain" and args.filter in case["case"]:
            run_case(case, args)


if __name__ == "__main__":
    main()
