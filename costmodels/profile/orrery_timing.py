"""How orrery_profile.py times an operator: PyTorch, CUDA events, and a process a GPU for collectives.

Every repetition lies between two events of its own, and the GPU is kept busy while the host queues them, so that short kernels
and collectives do not wait for Python. Before each repetition of a kernel the GPU reads more than twice its L2 cache of other
data, so that the kernel finds its inputs in memory.

What is timed is what orrery prices:
- GEMMs: the three of a linear layer. fp8: torch._scaled_mm with one scale a tensor, without the casts.
- grouped GEMMs: those of experts that got as many tokens each, in one kernel (torch._grouped_mm).
- attention "flash2" and "cudnn": PyTorch's FlashAttention-2 and cuDNN's kernel alone, with grouped heads as they are (enable_gqa),
  or, where PyTorch has no such kernel, with keys and values that were repeated beforehand.
- attention "unfused": Megatron-LM's core without fusions: the scale inside the first GEMM, then masked_fill_, softmax and
  dropout as kernels of their own. Keys and values of grouped heads were repeated beforehand; the mask is applied whether it is
  causal or empty.
- norm: layer norm; backward gives the gradients of input, weight and bias.
- rope: one kernel that multiplies pairs by complex factors, so that each byte is read once and written once, as a fused kernel
  does. PyTorch's own five kernels move ten tensors instead of two.
- optimizer: fused Adam on fp32. embedding, residual, activation, cross entropy, copy: PyTorch's kernels.
- collectives: the slowest rank of each repetition; the first of each queue, in which ranks find each other, is not counted.
"""
import json
import os
import socket
import subprocess
import sys

WARM_UP = 5
LEAST, MOST = 10, 100  # repetitions of a row
BUDGET_MS = 100  # of all repetitions of a row, once LEAST are done
QUEUE = 10  # repetitions queued behind one delay
DELAY_CYCLES = 2000000  # about a millisecond, in which the host queues what follows
COLLECTIVE_DELAY_CYCLES = 3 * DELAY_CYCLES  # a collective takes the host longer to launch than a kernel
COLLECTIVE_QUEUES = 2
LEAST_FLUSH = 2 ** 28  # bytes; caches that PyTorch does not know of (AMD's) hold as much
GROUP_LIMIT_S = 900  # a collective that takes longer ends its process group
MOST_LOST_GROUPS = 3  # process groups that end one after another before collectives are given up
ANSWER = "ORRERY_ANSWER"  # environment: the pipe on which rank 0 answers; standard output is NCCL's to write to
SIZES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}  # bytes of an element

NO_ROOM = ("CUDA error: out of memory", "HIP error: out of memory", "STATUS_ALLOC_FAILED")
FAILED = "STATUS_EXECUTION_FAILED"  # of cuBLAS, cuDNN and AMD's libraries
LOST = ("CUDA error", "HIP error", FAILED, "device-side", "illegal memory")  # after these every later call fails as well


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
    """Times of one row in microseconds, or the reason why there are none. `lost` says why no later row can be timed."""

    def __init__(self, torch, machine):
        self.torch, self.machine, self.group, self.lost = torch, machine, None, None
        self.lost_groups, self.other_data = 0, None

    def __call__(self, row):
        if row["family"] == "collective":
            return self.collective(row)
        try:
            self.torch.backends.cuda.matmul.allow_tf32 = row["dtype"] == "tf32"
            return timed(self.torch, operator(self.torch, row), self.flush)
        except self.torch.cuda.OutOfMemoryError:
            return "out of memory"
        except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
            return self.reason(error)  # the last two: a PyTorch that has no such function yet
        finally:
            if not self.lost:
                self.torch.cuda.empty_cache()

    def reason(self, error):
        text = " ".join(str(error).replace(",", ";").split())
        if any(one in text for one in NO_ROOM):
            return "out of memory"
        # A library's other errors say "CUDA error" too, but leave the GPU as it was, mostly.
        of_library = "_STATUS_" in text and FAILED not in text
        gone = type(error).__name__ == "AcceleratorError" or any(one in text for one in LOST)
        if (gone and not of_library) or not self.works():
            self.lost = "the GPU failing with '%s'" % text[:80]
            return "GPU lost: " + text[:80]
        return "unsupported: " + text[:80]

    def works(self):
        """Whether the GPU still computes: an error that ends a process shows again in all that follows."""
        try:
            self.torch.ones(1, device="cuda")
            self.torch.cuda.synchronize()
            return True
        except self.torch.cuda.OutOfMemoryError:
            return True
        except RuntimeError:
            return False

    def flush(self):
        """Fills the L2 cache with what no operator uses. Reading leaves nothing to be written back later."""
        if self.other_data is None:
            self.other_data = self.torch.ones(flush_bytes(self.torch) // 4, device="cuda")
        self.other_data.sum()

    def collective(self, row):
        if self.other_data is not None:  # the ranks need the memory
            self.other_data = None
            self.torch.cuda.empty_cache()
        if self.group is None or self.group.ranks != row["ranks"] or self.group.broken:
            if self.group:
                self.group.close()
            self.group = Group(row["ranks"])
        times = self.group.time(row)
        self.lost_groups = self.lost_groups + 1 if self.group.broken else 0
        if self.lost_groups == MOST_LOST_GROUPS:
            self.lost = "%d process groups of %d GPUs ending one after another (NCCL_DEBUG=INFO says more)" % (
                MOST_LOST_GROUPS, row["ranks"])
        return times


def flush_bytes(torch):
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    return max(2 * cache + 2 ** 20, 2 * LEAST_FLUSH if torch.version.hip else LEAST_FLUSH)


def timed(torch, call, flush):
    """Microseconds of each repetition."""
    for _ in range(WARM_UP):
        call()
    flush()
    torch.cuda.synchronize()
    times = []
    while len(times) < LEAST or (sum(times) < BUDGET_MS * 1e3 and len(times) < MOST):
        times += queued(torch, call, flush, QUEUE, DELAY_CYCLES)
    return times


def queued(torch, call, before, repetitions, delay_cycles):
    """Microseconds of each of these repetitions, which the host queues while the GPU is busy."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repetitions)]
    if hasattr(torch.cuda, "_sleep"):
        torch.cuda._sleep(delay_cycles)
    for begin, end in events:
        before()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e3 for begin, end in events]


def operator(torch, row):
    return {"gemm": gemm, "attention": attention, "kernel": kernel}[row["family"]](torch, row)


def dtype_of(torch, name):
    return {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def gemm(torch, row):
    """The three GEMMs of a linear layer: y = x W^T, dx = dy W, dW = dy^T x."""
    m, n, k = row["M"], row["N"], row["K"]
    left, right = {"forward": ((m, k), (n, k)), "dgrad": ((m, n), (n, k)), "wgrad": ((m, n), (m, k))}[row["pass"]]
    if row["dtype"] == "fp8":
        return fp8_gemm(torch, m, n, k, row["pass"])
    kind = dtype_of(torch, row["dtype"])
    if row["op"] == "grouped":
        return grouped_gemm(torch, row, kind)
    a, b = torch.randn(left, device="cuda", dtype=kind), torch.randn(right, device="cuda", dtype=kind)
    if row["pass"] == "forward":
        return lambda: torch.matmul(a, b.t())
    if row["pass"] == "dgrad":
        return lambda: torch.matmul(a, b)
    return lambda: torch.matmul(a.t(), b)


def fp8_gemm(torch, m, n, k, direction):
    """torch._scaled_mm takes a row-major and a column-major matrix: wgrad and dgrad read transposed copies, as training does."""
    rows, columns, inner = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[direction]
    a = torch.randn((rows, inner), device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn((columns, inner), device="cuda").to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)


def grouped_gemm(torch, row, kind):
    """The same of as many linear layers as the batch has, over rows that lie one expert's after another's."""
    experts, m, n, k = row["batch"], row["M"], row["N"], row["K"]
    ends = torch.arange(m, experts * m + 1, m, device="cuda", dtype=torch.int32)
    x, dy = (torch.randn((experts * m, width), device="cuda", dtype=kind) for width in (k, n))
    if row["pass"] == "wgrad":
        return lambda: torch._grouped_mm(dy.t(), x, offs=ends)
    weights = torch.randn((experts, n, k), device="cuda", dtype=kind)
    if row["pass"] == "forward":
        return lambda: torch._grouped_mm(x, weights.transpose(1, 2), offs=ends)
    return lambda: torch._grouped_mm(dy, weights, offs=ends)


def gradients(torch, forward, inputs):
    """The backward pass of `forward` alone; its graph is built once."""
    output = forward(*inputs)
    weight = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, inputs, weight, retain_graph=True)


def attention(torch, row):
    kind, backward = dtype_of(torch, row["dtype"]), row["pass"] == "backward"
    query = (row["batch"], row["heads"], row["query"], row["head_dim"])
    key = (row["batch"], row["kv_heads"], row["keys"], row["head_dim"])
    inputs = [torch.randn(shape, device="cuda", dtype=kind, requires_grad=backward) for shape in (query, key, key)]
    core, inputs = (unfused if row["op"] == "unfused" else fused)(torch, row, inputs)
    return gradients(torch, core, inputs) if backward else lambda: core(*inputs)


def repeated(row, inputs):
    """Keys and values once for each query head; leaves of their own, so that no gradient is summed back over the group."""
    q, k, v = inputs
    group = row["heads"] // row["kv_heads"]
    if group == 1:
        return inputs
    return [q] + [one.detach().repeat_interleave(group, 1).requires_grad_(one.requires_grad) for one in (k, v)]


def unfused(torch, row, inputs):
    """Megatron-LM core/transformer/dot_product_attention.py without fusions, on [batch x heads, tokens, head dimension]."""
    functional, scale = torch.nn.functional, row["head_dim"] ** -0.5
    mask = torch.ones((row["query"], row["keys"]), device="cuda", dtype=torch.bool).triu(1 if row["causal"] else row["keys"])
    nothing = torch.empty((1, 1, 1), device="cuda", dtype=inputs[0].dtype)

    def core(q, k, v):
        scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0.0, alpha=scale)
        scores = torch.softmax(scores.masked_fill_(mask, -10000.0), dim=-1)
        return torch.bmm(functional.dropout(scores, 0.1), v)
    flat = [one.detach().flatten(0, 1).requires_grad_(one.requires_grad) for one in repeated(row, inputs)]
    return core, flat


def fused(torch, row, inputs):
    """The fused core, and the inputs that it takes."""
    attend, causal, op = torch.nn.functional.scaled_dot_product_attention, bool(row["causal"]), row["op"]
    if row["heads"] == row["kv_heads"]:
        return lambda q, k, v: only(torch, op, lambda: attend(q, k, v, is_causal=causal)), inputs

    def grouped(q, k, v):
        return only(torch, op, lambda: attend(q, k, v, is_causal=causal, enable_gqa=True))
    try:
        grouped(*inputs)
        return grouped, inputs
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):  # no such kernel here, or PyTorch before 2.5
        return lambda q, k, v: only(torch, op, lambda: attend(q, k, v, is_causal=causal)), repeated(row, inputs)


def only(torch, op, call):
    """This fused kernel or an error, never another one."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:  # PyTorch before 2.3, which has one fused kernel
        if op == "cudnn":
            raise NotImplementedError("PyTorch without cuDNN's attention")
        with torch.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False, enable_mem_efficient=False):
            return call()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION if op == "flash2" else SDPBackend.CUDNN_ATTENTION):
        return call()


def kernel(torch, row):
    kind, functional = dtype_of(torch, row["dtype"]), torch.nn.functional
    tokens, width, op, backward = row["M"], row["N"], row["op"], row["pass"] == "backward"

    def tensor(*shape, grad=False):
        return torch.randn(shape, device="cuda", dtype=kind, requires_grad=grad)

    if op == "optimizer":
        parameter = torch.nn.Parameter(torch.randn(tokens * width, device="cuda"))
        parameter.grad = torch.randn_like(parameter)
        return torch.optim.Adam([parameter], fused=True).step
    if op == "embedding":
        table, ids = tensor(32768, width), torch.randint(0, 32768, (tokens,), device="cuda")
        return lambda: functional.embedding(ids, table)
    if op == "rope":
        # As many bytes as tokens x width elements of 16 bits, in heads of 128: 32 numbers of 64 bits.
        x, turn = (torch.randn(shape, device="cuda", dtype=torch.complex64)
                   for shape in ((tokens, width // 128, 32), (tokens, 1, 32)))
        return lambda: x * turn
    x = tensor(tokens, width, grad=backward)
    if op == "copy":
        target = torch.empty_like(x)
        return lambda: target.copy_(x)
    if op == "residual":
        other = tensor(tokens, width)
        return lambda: x + other
    if op == "norm":
        inputs = [x, tensor(width, grad=backward), tensor(width, grad=backward)]
        call = lambda y, weight, bias: functional.layer_norm(y, (width,), weight, bias)  # noqa: E731
    elif op == "activation":
        inputs, call = [x], lambda y: functional.gelu(y, approximate="tanh")
    else:
        target = torch.randint(0, width, (tokens,), device="cuda")
        inputs, call = [x], lambda y: functional.cross_entropy(y, target)
    return gradients(torch, call, inputs) if backward else lambda: call(*inputs)


# ---- Collectives: this module as a program, one process a GPU ------------------------------------------------------------

class Group:
    """A process for each of `ranks` GPUs; rank 0 answers a row at a time."""

    def __init__(self, ranks):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.ranks, self.broken, self.processes = ranks, False, []
        answers, answer = os.pipe()
        self.answers = os.fdopen(answers)
        for rank in range(ranks):
            environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
            environment[ANSWER] = str(answer)
            self.processes.append(subprocess.Popen(
                [sys.executable, os.path.abspath(__file__)], env=environment, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(),
                pass_fds=[answer] if rank == 0 else [], universal_newlines=True))
        os.close(answer)  # so that the pipe ends with rank 0

    def time(self, row):
        try:
            for process in self.processes:
                process.stdin.write(json.dumps(row) + "\n")
                process.stdin.flush()
            return json.loads(self.answers.readline())
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
        self.answers.close()


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
    answer = os.fdopen(int(os.environ[ANSWER]), "w") if os.environ["RANK"] == "0" else None
    distributed.init_process_group("nccl", timeout=datetime.timedelta(seconds=GROUP_LIMIT_S))
    for line in sys.stdin:
        row = json.loads(line)
        call = collective(torch, distributed, row)
        # Every rank repeats equally often: a fixed count, not a budget that each would judge by its own clock.
        times = fixed(torch, call, distributed.barrier)
        slowest = torch.tensor(times, device="cuda")
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
        if distributed.get_rank() == 0:
            answer.write(json.dumps(slowest.tolist()) + "\n")
            answer.flush()
    distributed.destroy_process_group()


def fixed(torch, call, barrier):
    for _ in range(WARM_UP):
        call()
    times = []
    for _ in range(COLLECTIVE_QUEUES):
        barrier()
        torch.cuda.synchronize()
        times += queued(torch, call, lambda: None, 1 + QUEUE, COLLECTIVE_DELAY_CYCLES)[1:]
    return times


if __name__ == "__main__":
    worker()
