#!/usr/bin/env python3
"""Times training steps on one GPU, of models and programs whose every fact is known, for `orrery validate --measured`.

Needs PyTorch; cases named hf-* need transformers too. Writes two files into a folder: steps.csv, a row a case with the columns
of measured runs (sim/MEASURED_RUNS.md), and steps.json: the machine, each step's time, memory, and where the GPU's time of a step
went, kernel by kernel. A case that a library cannot run says why in its row and does not end the others.
"""
import argparse
import csv
import datetime
import gc
import json
import math
import os
import re
import sys
import time

from orrery_profile import usable_torch

VERSION = "1"
WARM_UP, TIMED, PROFILED = 3, 8, 2  # steps
COLUMNS = ("id,source_key,source,gpu,gpus_per_node,n_gpus,framework,model,layers,hidden,heads,kv_heads,ffn,head_dim,vocab,seq,"
           "n_experts,experts_per_token,precision,gbs,mbs,tp,pp,dp,cp,ep,recompute,flash_attn,optimizer_sharding,iter_time_s,peak_mem_gb,"
           "peak_mem_figure,status,note").split(",")
NO_ROOM = "out of memory"

# hidden, feed-forward (of an expert where there are some), heads, key-value heads, head dimension, vocabulary, experts, chosen
MODELS = {
    "llama3-8b": (4096, 14336, 32, 8, 128, 128256, 0, 0),
    "llama3.2-1b": (2048, 8192, 32, 8, 64, 128256, 0, 0),
    "llama-160m": (768, 3072, 12, 12, 64, 32000, 0, 0),
    "qwen3-0.6b": (1024, 3072, 16, 8, 128, 151936, 0, 0),
    "gpt2-medium": (1024, 4096, 16, 16, 64, 50257, 0, 0),
    "qwen3-30b-a3b": (2048, 768, 32, 4, 128, 151936, 128, 8),
    "mixtral-8x7b": (4096, 14336, 32, 8, 128, 32000, 8, 2),
}
TIED = ("llama3.2-1b", "qwen3-0.6b", "gpt2-medium")  # one matrix for tokens and logits


def case(name, program, model, layers, seq, mbs, **more):
    return dict({"name": name, "program": program, "model": model, "layers": layers, "seq": seq, "mbs": mbs, "recompute": "none",
                 "precision": "bf16", "compile": False, "experts": ""}, **more)


# precision: `bf16` keeps weights, gradients and moments in fp32 and computes in bf16; `pure bf16` keeps all in bf16.
CASES = [
    case("titan-8b-compiled", "fsdp2", "llama3-8b", 8, 8192, 1, compile=True),
    case("hf-qwen-moe-loop", "hf", "qwen3-30b-a3b", 4, 4096, 1, precision="pure bf16", experts="eager"),
    case("hf-qwen-moe-grouped", "hf", "qwen3-30b-a3b", 4, 4096, 1, precision="pure bf16", experts="grouped_mm"),
    case("hf-llama-1b", "hf", "llama3.2-1b", 16, 4096, 2),
    case("hf-llama-1b-bf16", "hf", "llama3.2-1b", 16, 4096, 2, precision="pure bf16"),
    case("titan-8b-eager", "fsdp2", "llama3-8b", 8, 8192, 1),
    case("hf-qwen-0.6b-1", "hf", "qwen3-0.6b", 28, 2048, 1),
    case("plain-160m", "plain", "llama-160m", 12, 1024, 8),
    case("fsdp2-160m", "fsdp2", "llama-160m", 12, 1024, 8),
    case("hf-qwen-moe-loop-1k", "hf", "qwen3-30b-a3b", 4, 1024, 1, precision="pure bf16", experts="eager"),
    case("hf-qwen-moe-grouped-32k", "hf", "qwen3-30b-a3b", 4, 4096, 8, precision="pure bf16", experts="grouped_mm"),
    case("hf-mixtral-loop", "hf", "mixtral-8x7b", 2, 4096, 1, precision="pure bf16", experts="eager"),
    case("hf-mixtral-grouped", "hf", "mixtral-8x7b", 2, 4096, 1, precision="pure bf16", experts="grouped_mm"),
    case("hf-llama-1b-full", "hf", "llama3.2-1b", 16, 4096, 2, recompute="full"),
    case("hf-qwen-0.6b-8", "hf", "qwen3-0.6b", 28, 2048, 8),
    case("hf-gpt2-medium", "hf", "gpt2-medium", 24, 1024, 8),
    case("hf-llama-8b-full", "hf", "llama3-8b", 8, 8192, 1, precision="pure bf16", recompute="full"),
    case("titan-8b-compiled-full", "fsdp2", "llama3-8b", 8, 8192, 1, compile=True, recompute="full"),
    case("titan-1b-compiled", "fsdp2", "llama3.2-1b", 16, 2048, 4, compile=True),
    case("plain-1b-compiled", "plain", "llama3.2-1b", 16, 2048, 4, compile=True),
]


# ---- Llama in plain PyTorch ----------------------------------------------------------------------------------------------

def plain_model(torch, hidden, ffn, heads, kv_heads, dim, vocabulary, layers, tied):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
            self.q = nn.Linear(hidden, heads * dim, bias=False)
            self.k, self.v = (nn.Linear(hidden, kv_heads * dim, bias=False) for _ in range(2))
            self.out = nn.Linear(heads * dim, hidden, bias=False)
            self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
            self.down = nn.Linear(ffn, hidden, bias=False)

        def forward(self, x, turn):
            batch, tokens, _ = x.shape
            y = self.norm_1(x)
            q, k, v = (one(y).view(batch, tokens, -1, dim) for one in (self.q, self.k, self.v))
            q, k = rotated(q, turn), rotated(k, turn)
            y = functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v)), is_causal=True,
                                                        enable_gqa=heads != kv_heads)
            x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, -1))
            y = self.norm_2(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def rotated(x, turn):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn[:, None, :]).flatten(3).type_as(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.RMSNorm(hidden, eps=1e-5)
            self.head = nn.Linear(hidden, vocabulary, bias=False)
            if tied:
                self.head.weight = self.embedding.weight

        def forward(self, tokens):
            places = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
            angles = torch.outer(places, 5e5 ** (-torch.arange(0, dim, 2, device=tokens.device) / dim))
            turn = torch.polar(torch.ones_like(angles), angles)
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, turn)
            return self.head(self.norm(x))

    return Model()


def plain_step(torch, one, tokens):
    """The step of plain PyTorch: alone under autocast, or each block a unit of FSDP2 as torchtitan has it."""
    hidden, ffn, heads, kv_heads, dim, vocabulary, _, _ = MODELS[one["model"]]
    sharded = one["program"] == "fsdp2"
    with torch.device("cuda"):
        model = plain_model(torch, hidden, ffn, heads, kv_heads, dim, vocabulary, one["layers"],
                            one["model"] in TIED and not sharded)
    if one["recompute"] == "full":
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block, preserve_rng_state=False)
    if one["compile"]:
        for block in model.blocks:
            block.compile(fullgraph=True)
    if sharded:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = mesh_of_one(torch)
        for unit in [model.embedding] + list(model.blocks) + [[model.norm, model.head]]:
            fully_shard(unit, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def loss(logits):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    if one["compile"]:
        loss = torch.compile(loss)

    def step():
        if sharded:
            loss(model(tokens[:, :-1])).backward()
        else:
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(tokens[:, :-1])
            loss(logits).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
    return step


def mesh_of_one(torch):
    from torch import distributed
    if not distributed.is_initialized():
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
        distributed.init_process_group("nccl")
    return distributed.device_mesh.init_device_mesh("cuda", (1,))


# ---- Models of transformers ----------------------------------------------------------------------------------------------

def hf_model(torch, one):
    import transformers
    hidden, ffn, heads, kv_heads, dim, vocabulary, experts, chosen = MODELS[one["model"]]
    usual = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": one["layers"], "vocab_size": vocabulary,
             "max_position_embeddings": 8192, "use_cache": False, "tie_word_embeddings": one["model"] in TIED}
    if one["model"] == "gpt2-medium":
        config = transformers.GPT2Config(n_embd=hidden, n_head=heads, n_layer=one["layers"], n_positions=1024, use_cache=False)
    elif one["model"].startswith("llama"):
        config = transformers.LlamaConfig(intermediate_size=ffn, num_key_value_heads=kv_heads, head_dim=dim, **usual)
    elif one["model"] == "qwen3-0.6b":
        config = transformers.Qwen3Config(intermediate_size=ffn, num_key_value_heads=kv_heads, head_dim=dim, **usual)
    elif one["model"] == "mixtral-8x7b":
        config = transformers.MixtralConfig(intermediate_size=ffn, num_key_value_heads=kv_heads, num_local_experts=experts,
                                            num_experts_per_tok=chosen, sliding_window=None, **usual)
    else:
        config = transformers.Qwen3MoeConfig(moe_intermediate_size=ffn, num_key_value_heads=kv_heads, head_dim=dim,
                                             num_experts=experts, num_experts_per_tok=chosen, **usual)
    kind = torch.bfloat16 if one["precision"] == "pure bf16" else torch.float32
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=kind, attn_implementation="sdpa").to("cuda", kind)
    if one["experts"]:
        model.set_experts_implementation(one["experts"])
    model.train()
    if one["recompute"] == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def hf_step(torch, one, tokens):
    model = hf_model(torch, one)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = tokens[:, :-1].contiguous()
    mixed = one["precision"] == "bf16"

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
    return step


# ---- Timing --------------------------------------------------------------------------------------------------------------

# The first that a kernel's name has.
PARTS = [
    ("attention", r"flash|fmha|sdpa|attention|attn"),
    ("optimizer", r"adam|multi_tensor_apply|lpnorm"),
    ("matrices", r"gemm|nvjet|cutlass|xmma|splitk|gemv"),
    ("collectives", r"nccl"),
    ("compiled", r"triton"),
    ("copies", r"memcpy|memset|copy|catarray|split_with_sizes"),
    ("loss", r"nll_loss|softmax|cross_entropy"),
    ("norms", r"layer_norm|rms_norm|layernorm|rmsnorm"),
    ("routing", r"sort|scan|topk|histogram|nonzero|index|scatter|gather|radix|embedding|one_hot"),
    ("elementwise", r"elementwise|reduce"),
]


def part_of(name):
    return next((part for part, words in PARTS if re.search(words, name.lower())), "other")


def profiled(torch, step):
    """Of one step in seconds: kernels by part, the GPU's busy time, its span; and the longest kernels."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    parts, kernels, spans = {}, {}, []
    for event in trace.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        begin, end = event.time_range.start, event.time_range.end
        spans.append((begin, end))
        for table, key in ((parts, part_of(event.name)), (kernels, event.name[:160])):
            seconds, count = table.get(key, (0, 0))
            table[key] = (seconds + (end - begin) / 1e6 / PROFILED, count + 1 / PROFILED)
    busy, last = 0, 0
    for begin, end in sorted(spans):
        busy += max(0, end - max(begin, last))
        last = max(last, end)
    longest = sorted(kernels.items(), key=lambda item: -item[1][0])[:40]
    span = (last - min(begin for begin, _ in spans)) / 1e6 / PROFILED
    return {"busy_s": busy / 1e6 / PROFILED, "span_s": span, "kernels": len(spans) / PROFILED, "parts": parts, "longest": longest}


def measured(torch, one):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    vocabulary = MODELS[one["model"]][5]
    tokens = torch.randint(0, vocabulary, (one["mbs"], one["seq"] + 1), device="cuda")
    step = (hf_step if one["program"] == "hf" else plain_step)(torch, one, tokens)
    begun = time.time()
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    warm = time.time() - begun
    torch.cuda.reset_peak_memory_stats()
    started, times = time.time(), []
    for _ in range(TIMED):
        begun = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    queued = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    queued = (time.perf_counter() - queued) / TIMED
    free, total = torch.cuda.mem_get_info()
    result = {"times_s": times, "queued_s": queued, "warm_up_s": warm, "started": started, "ended": time.time(),
              "allocated_gb": torch.cuda.max_memory_allocated() / 1e9, "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
              "card_gb": (total - free) / 1e9}
    result.update(profiled(torch, step))
    return result


def host(torch):
    """What the machine's processor takes: a loop of Python, and the launch of a kernel."""
    begun = time.perf_counter()
    total = 0
    for i in range(2000000):
        total += i
    loop = (time.perf_counter() - begun) / 2000000
    x = torch.zeros(1, device="cuda")
    for _ in range(100):
        x.add_(1)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(10000):
        x.add_(1)
    launch = (time.perf_counter() - begun) / 10000
    torch.cuda.synchronize()
    try:
        with open("/proc/cpuinfo") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    except OSError:
        name = "unknown"
    return {"processor": name, "python_loop_ns": loop * 1e9, "launch_us": launch * 1e6}


PROGRAMS = {"hf": "Hugging Face transformers %(transformers)s, PyTorch %(torch)s", "plain": "PyTorch %(torch)s",
            "fsdp2": "PyTorch %(torch)s FSDP2"}


def row_of(machine, one, result):
    """The row of measured runs that the case is."""
    hidden, ffn, heads, kv_heads, dim, vocabulary, experts, chosen = MODELS[one["model"]]
    name = machine["gpu"].replace("NVIDIA ", "")
    key = "orrery-" + name.split()[0].split("-")[0].lower()
    versions = {library: ".".join(machine[library].split("+")[0].split(".")[:2]) for library in ("torch", "transformers")}
    month = datetime.datetime.strptime(machine["begun"][:10], "%Y-%m-%d").strftime("%B %Y")
    words = ["torch.compile", "compiled loss"] * one["compile"] + ["fused AdamW", month]
    reserved = one["program"] == "fsdp2"  # as torchtitan reports it
    precision = "bf16-true" if one["precision"] == "pure bf16" else "bf16" if one["program"] == "fsdp2" else "bf16 mixed"
    row = {column: "" for column in COLUMNS}
    row.update({
        "id": key + "-" + one["name"], "source_key": key, "source": "orrery_steps.py version %s" % machine["script"],
        "gpu": name, "gpus_per_node": 1, "n_gpus": 1,
        "framework": "%s (%s)" % (PROGRAMS[one["program"]] % versions, ", ".join(words)), "model": one["model"],
        "layers": one["layers"], "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "head_dim": dim,
        "vocab": vocabulary, "seq": one["seq"], "n_experts": experts or "", "experts_per_token": chosen or "",
        "precision": precision, "gbs": one["mbs"], "mbs": one["mbs"], "tp": 1, "pp": 1, "dp": 1, "cp": 1, "ep": 1,
        "recompute": one["recompute"], "flash_attn": "yes",
        "optimizer_sharding": "FSDP2" if one["program"] == "fsdp2" else "no", "status": "ok",
        "note": ("experts: %s; " % one["experts"] if one["experts"] else "") + machine["host"]["processor"]})
    if isinstance(result, str):
        row.update({"status": "OOM" if result == NO_ROOM else "failed", "note": " ".join(result.split())[:200]})
    else:
        peak = result["reserved_gb" if reserved else "allocated_gb"] * 1e9 / 2 ** 30
        row.update({"iter_time_s": "%.4f" % result["queued_s"], "peak_mem_gb": "%.2f" % peak,
                    "peak_mem_figure": "reserved" if reserved else "allocated"})
    return row


def write_table(folder, machine, results):
    with open(os.path.join(folder, "steps.csv"), "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for one in results.values():
            table.writerow(row_of(machine, one["case"], one["result"]))


def describe(torch):
    try:
        import transformers
        version = transformers.__version__
    except ImportError:
        version = "none"
    return {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "transformers": version,
            "cudnn": torch.backends.cudnn.version(), "host": host(torch), "script": VERSION,
            "begun": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


def attempted(torch, one):
    try:
        return measured(torch, one)
    except torch.cuda.OutOfMemoryError:
        return NO_ROOM
    except Exception as error:  # a case that a version of a library cannot run must not end the others
        return "%s: %s" % (type(error).__name__, error)


def in_short(result):
    if isinstance(result, str):
        return result
    return "%.1f ms, GPU busy %.1f, %d kernels, %.1f GB" % (
        result["queued_s"] * 1e3, result["busy_s"] * 1e3, result["kernels"], result["allocated_gb"])


def main():
    parser = argparse.ArgumentParser(prog="orrery profile --steps", description=__doc__, allow_abbrev=False)
    parser.add_argument("-o", "--output", required=True, help="folder of steps.csv and steps.json")
    parser.add_argument("--only", action="append", choices=[one["name"] for one in CASES], help="may be repeated")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no case is begun after this long")
    parser.add_argument("--quiet", action="store_true", help="no line for each case")
    parser.add_argument("--table", action="store_true", help="measure nothing: write the table of the steps.json that is there")
    options = parser.parse_args()
    path = os.path.join(options.output, "steps.json")
    if options.table:
        with open(path) as file:
            known = json.load(file)
        write_table(options.output, known["machine"], known["cases"])
        return 0
    torch = usable_torch(place="--steps: ")
    os.makedirs(options.output, exist_ok=True)
    machine, results, begun = describe(torch), {}, time.time()
    for one in CASES:
        if options.only and one["name"] not in options.only or time.time() - begun > 60 * options.minutes:
            continue
        result = attempted(torch, one)
        gc.collect()
        torch._dynamo.reset()
        results[one["name"]] = {"case": one, "result": result}
        write_table(options.output, machine, results)
        with open(path, "w") as file:
            json.dump({"machine": machine, "cases": results}, file, indent=1)
        if not options.quiet:
            print("%-26s %s" % (one["name"], in_short(result)), file=sys.stderr)
    return 0 if any(not isinstance(one["result"], str) for one in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
