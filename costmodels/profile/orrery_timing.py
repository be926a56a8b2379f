"""How orrery_profile.py times an operator: PyTorch, CUDA events, and a process a GPU for collectives.

Every repetition lies between two events of its own, and the GPU is kept busy while the host queues them, so that short kernels
do not wait for Python. Inputs rotate over several copies, so that a kernel finds them in memory and not in the L2 cache.
"""
import json
import os
import socket
import subprocess
import sys

WARM_UP = 5
LEAST, MOST = 10, 100  # repetitions of a row
BUDGET_MS = 300  # of all repetitions of a row, once LEAST are done
QUEUE = 10  # repetitions queued behind one delay
MOST_COPIES = 16
GROUP_LIMIT_S = 900  # a collective that takes longer ends its process group
SIZES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}  # bytes of an element


def describe(torch, version):
    """The machine: what machine.json holds."""
    properties = torch.cuda.get_device_properties(0)
    names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
    if len(names) > 1:
        sys.stderr.write("orrery profile: found GPUs of several kinds, %s; expected one kind (CUDA_VISIBLE_DEVICES chooses)\n" %
                         ", ".join(sorted(names)))
        sys.exit(2)
    amd = torch.version.hip is not None
    capability = (9, 0) if amd else torch.cuda.get_device_capability(0)
    types = ["fp32"]
    if capability >= (8, 0) and not amd:
        types.append("tf32")
    if capability >= (7, 0):
        types.append("fp16")
    if capability >= (8, 0):
        types.append("bf16")
    if capability >= (8, 9) and not amd and hasattr(torch, "_scaled_mm"):
        types.append("fp8")
    machine = {"gpu": torch.cuda.get_device_name(0), "gpus": torch.cuda.device_count(), "driver": "unknown",
               "torch": torch.__version__, "cuda": str(torch.version.hip or torch.version.cuda), "clock": "events",
               "script": version, "types": types, "memory_bytes": properties.total_memory,
               "multiprocessors": properties.multi_processor_count, "python": sys.version.split()[0]}
    fields = ["driver_version", "clocks.max.sm", "clocks.max.memory", "clocks.sm", "power.limit", "persistence_mode"]
    try:
        answer = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"], check=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, universal_newlines=True)
        values = [one.strip() for one in answer.stdout.splitlines()[0].split(",")]
        machine.update(zip(["driver"] + [one.replace(".", "_") for one in fields[1:]], values))
    except (OSError, subprocess.SubprocessError, IndexError):
        pass  # AMD, or a container without the tool: the rest still says which machine it was
    return machine


class Clock:
    """Times of one row in microseconds, or the reason why there are none."""

    def __init__(self, torch, machine):
        self.torch, self.machine, self.group = torch, machine, None

    def __call__(self, row):
        torch = self.torch
        if row["family"] == "collective":
            return self.collective(row)
        try:
            torch.backends.cuda.matmul.allow_tf32 = row["dtype"] == "tf32"
            return timed(torch, operator(torch, row))
        except torch.cuda.OutOfMemoryError:
            return "out of memory"
        except (RuntimeError, ValueError, NotImplementedError) as error:
            if "device-side" in str(error) or "illegal memory" in str(error):
                raise  # nothing on this GPU works any more
            return "unsupported: " + " ".join(str(error).replace(",", ";").split())[:80]
        finally:
            torch.cuda.empty_cache()

    def collective(self, row):
        if self.group is None or self.group.ranks != row["ranks"] or self.group.broken:
            if self.group:
                self.group.close()
            self.group = Group(row["ranks"])
        return self.group.time(row)


def timed(torch, calls):
    """Microseconds of each repetition; `calls` do the same on different data."""
    for i in range(WARM_UP):
        calls[i % len(calls)]()
    torch.cuda.synchronize()
    times = []
    while len(times) < LEAST or (sum(times) < BUDGET_MS * 1e3 and len(times) < MOST):
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(QUEUE)]
        if hasattr(torch.cuda, "_sleep"):
            torch.cuda._sleep(2000000)  # about a millisecond, in which the host queues what follows
        for i, (begin, end) in enumerate(events):
            begin.record()
            calls[(len(times) + i) % len(calls)]()
            end.record()
        torch.cuda.synchronize()
        times += [begin.elapsed_time(end) * 1e3 for begin, end in events]
    return times


def copies(torch, bytes_of_one):
    """How many sets of inputs pass twice the L2 cache, within a quarter of the memory."""
    properties = torch.cuda.get_device_properties(0)
    cache = getattr(properties, "L2_cache_size", 0) or 64 * 2 ** 20
    fitting = int(properties.total_memory / 4 // max(bytes_of_one, 1))
    return max(1, min(MOST_COPIES, fitting, 1 + int(2 * cache // max(bytes_of_one, 1))))


def operator(torch, row):
    return {"gemm": gemm, "attention": attention, "kernel": kernel}[row["family"]](torch, row)


def dtype_of(torch, name):
    return {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def gemm(torch, row):
    """The three GEMMs of a linear layer: y = x W^T, dx = dy W, dW = dy^T x."""
    m, n, k = row["M"], row["N"], row["K"]
    left, right = {"forward": ((m, k), (n, k)), "dgrad": ((m, n), (n, k)), "wgrad": ((m, n), (m, k))}[row["pass"]]
    sets = copies(torch, SIZES[row["dtype"]] * (left[0] * left[1] + right[0] * right[1]))
    if row["dtype"] == "fp8":
        return [fp8_gemm(torch, m, n, k, row["pass"]) for _ in range(min(sets, 4))]
    kind = dtype_of(torch, row["dtype"])

    def one():
        a, b = torch.randn(left, device="cuda", dtype=kind), torch.randn(right, device="cuda", dtype=kind)
        if row["pass"] == "forward":
            return lambda: torch.matmul(a, b.t())
        if row["pass"] == "dgrad":
            return lambda: torch.matmul(a, b)
        return lambda: torch.matmul(a.t(), b)
    return [one() for _ in range(sets)]


def fp8_gemm(torch, m, n, k, direction):
    """torch._scaled_mm takes a row-major and a column-major matrix: wgrad and dgrad read transposed copies, as training does."""
    rows, columns, inner = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[direction]
    a = torch.randn((rows, inner), device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn((columns, inner), device="cuda").to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)


def gradients(torch, forward, inputs):
    """The backward pass of `forward` alone; its graph is built once."""
    output = forward(*inputs)
    weight = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, inputs, weight, retain_graph=True)


def attention(torch, row):
    kind, functional = dtype_of(torch, row["dtype"]), torch.nn.functional
    query = (row["batch"], row["heads"], row["query"], row["head_dim"])
    key = (row["batch"], row["kv_heads"], row["keys"], row["head_dim"])
    group = row["heads"] // row["kv_heads"]
    mask = torch.full((row["query"], row["keys"]), float("-inf"), device="cuda", dtype=kind).triu(1) if row["causal"] else None

    def unfused(q, k, v):
        scores = torch.matmul(q, k.transpose(2, 3)) * row["head_dim"] ** -0.5
        scores = torch.softmax(scores + mask if mask is not None else scores, dim=-1, dtype=kind)
        return torch.matmul(functional.dropout(scores, 0.1), v)

    def flash(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=bool(row["causal"]))

    def whole(q, k, v):
        # Grouped queries: a view where the kernel allows it, as Megatron does before the core.
        k, v = (one.repeat_interleave(group, 1) if group > 1 else one for one in (k, v))
        return unfused(q, k, v) if row["op"] == "unfused" else only_flash(torch, lambda: flash(q, k, v))

    def one():
        inputs = [torch.randn(shape, device="cuda", dtype=kind, requires_grad=True) for shape in (query, key, key)]
        if row["pass"] == "backward":
            return gradients(torch, whole, inputs)

        def forward():
            with torch.no_grad():
                return whole(*inputs)
        return forward
    return [one()]


def only_flash(torch, call):
    """A fused kernel or an error, never the unfused fallback."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        fused = [SDPBackend.FLASH_ATTENTION] + [getattr(SDPBackend, "CUDNN_ATTENTION")] * hasattr(SDPBackend, "CUDNN_ATTENTION")
        with sdpa_kernel(fused):
            return call()
    except ImportError:
        with torch.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False, enable_mem_efficient=False):
            return call()


def kernel(torch, row):
    kind, functional = dtype_of(torch, row["dtype"]), torch.nn.functional
    tokens, width, op = row["M"], row["N"], row["op"]
    sets = copies(torch, row["bytes"])

    def tensor(*shape, grad=False):
        return torch.randn(shape, device="cuda", dtype=kind, requires_grad=grad)

    def rotated(x, cosine, sine):
        half = x.shape[-1] // 2
        return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine

    def one():
        if op == "optimizer":
            parameter = torch.nn.Parameter(torch.randn(tokens * width, device="cuda"))
            parameter.grad = torch.randn_like(parameter)
            return torch.optim.Adam([parameter], fused=True).step
        if op == "embedding":
            table, ids = tensor(32768, width), torch.randint(0, 32768, (tokens,), device="cuda")
            return lambda: functional.embedding(ids, table)
        if op == "rope":
            x, cosine, sine = tensor(tokens, width // 128, 128), tensor(tokens, 1, 128), tensor(tokens, 1, 128)
            return lambda: rotated(x, cosine, sine)
        x = tensor(tokens, width, grad=row["pass"] == "backward")
        if op == "copy":
            target = torch.empty_like(x)
            return lambda: target.copy_(x)
        if op == "residual":
            other = tensor(tokens, width)
            return lambda: x + other
        if op == "norm":
            weight, bias = tensor(width), tensor(width)
            call = lambda y: functional.layer_norm(y, (width,), weight, bias)  # noqa: E731
        elif op == "activation":
            call = lambda y: functional.gelu(y, approximate="tanh")  # noqa: E731
        else:
            target = torch.randint(0, width, (tokens,), device="cuda")
            call = lambda y: functional.cross_entropy(y, target)  # noqa: E731
        return gradients(torch, call, [x]) if row["pass"] == "backward" else lambda: call(x)
    return [one() for _ in range(sets)]


# ---- Collectives: this module as a program, one process a GPU ------------------------------------------------------------

class Group:
    """A process for each of `ranks` GPUs; rank 0 answers a row at a time."""

    def __init__(self, ranks):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.ranks, self.broken, self.processes = ranks, False, []
        for rank in range(ranks):
            environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
            self.processes.append(subprocess.Popen(
                [sys.executable, os.path.abspath(__file__)], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, universal_newlines=True))

    def time(self, row):
        try:
            for process in self.processes:
                process.stdin.write(json.dumps(row) + "\n")
                process.stdin.flush()
            line = self.processes[0].stdout.readline()
            return json.loads(line)
        except (OSError, ValueError):
            self.broken = True
            return "process group ended"

    def close(self):
        for process in self.processes:
            if self.broken:
                process.kill()
            try:
                process.stdin.close()
            except OSError:
                pass
        for process in self.processes:
            process.wait()


def collective(torch, distributed, row):
    """Bytes are the whole vector of one rank (input of all-reduce, reduce-scatter, all-to-all; output of all-gather)."""
    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    whole = torch.ones(max(row["bytes"] // 4 // ranks, 1) * ranks, device="cuda")
    part = torch.empty(whole.numel() // ranks, device="cuda")
    other = torch.empty_like(whole)
    return {"all_reduce": lambda: distributed.all_reduce(whole),
            "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole),
            "all_gather": lambda: distributed.all_gather_into_tensor(other, part),
            "all_to_all": lambda: distributed.all_to_all_single(other, whole),
            "send_recv": lambda: distributed.send(whole, 1) if rank == 0 else distributed.recv(whole, 0)}[row["op"]]


def worker():
    import datetime

    import torch
    from torch import distributed
    torch.cuda.set_device(int(os.environ["RANK"]))
    distributed.init_process_group("nccl", timeout=datetime.timedelta(seconds=GROUP_LIMIT_S))
    for line in sys.stdin:
        row = json.loads(line)
        call = collective(torch, distributed, row)
        # Every rank repeats equally often: a fixed count, not a budget that each would judge by its own clock.
        times = fixed(torch, call, distributed.barrier)
        slowest = torch.tensor(times, device="cuda")
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
        if distributed.get_rank() == 0:
            print(json.dumps(slowest.tolist()), flush=True)
    distributed.destroy_process_group()


def fixed(torch, call, barrier):
    times = []
    for i in range(WARM_UP + 2 * LEAST):
        barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if i >= WARM_UP:
            times.append(begin.elapsed_time(end) * 1e3)
    return times


if __name__ == "__main__":
    worker()
