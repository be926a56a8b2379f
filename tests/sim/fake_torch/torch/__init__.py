"""Stands in for PyTorch where `orrery profile` is tested without a GPU: tensors are shapes, and each kernel moves a clock.

FAKE_FAIL_FROM=N and FAKE_FAIL_TO=M make the N-th to the M-th kernel raise an error that says FAKE_MESSAGE; FAKE_NAME and
FAKE_GPUS say which GPUs there are. With NCCL_DEBUG set rank 0 prints as NCCL does. FAKE_LOG names a file that gets a line for
each kernel between two events: its name, and the bytes that it moves. FAKE_AGE is "old" or "middle" for what PyTorch lacked.
"""
import math
import os
import sys
import types

__version__ = "0"
version = types.SimpleNamespace(hip=None, cuda="0")
float32, float16, bfloat16, float8_e4m3fn, complex64, bool = "fp32", "fp16", "bf16", "fp8", "complex64", "bool"
SIZES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "complex64": 8, "bool": 1}
BYTES_A_SECOND, LAUNCH_S = 1.4e12, 2e-6
FAIL_FROM, FAIL_TO = (int(os.environ.get(name, "0")) for name in ("FAKE_FAIL_FROM", "FAKE_FAIL_TO"))
state = types.SimpleNamespace(now=0.0, kernels=0, timing=False)


class OutOfMemoryError(RuntimeError):
    pass


def kernel(name, moved):
    state.kernels += 1
    if FAIL_FROM and FAIL_FROM <= state.kernels <= (FAIL_TO or sys.maxsize):
        raise RuntimeError(os.environ.get("FAKE_MESSAGE", "CUDA error: unspecified launch failure"))
    state.now += LAUNCH_S + moved / BYTES_A_SECOND
    if state.timing and "FAKE_LOG" in os.environ:
        with open(os.environ["FAKE_LOG"], "a") as log:
            log.write("%s %d\n" % (name, moved))


class Tensor:
    def __init__(self, shape, dtype="fp32", requires_grad=False):
        self.shape, self.dtype, self.requires_grad = tuple(shape), dtype, requires_grad

    def numel(self):
        return math.prod(self.shape)

    def nbytes(self):
        return self.numel() * SIZES[self.dtype]

    def like(self, *shape):
        return Tensor(shape, self.dtype, self.requires_grad)

    def t(self):
        return self.like(*reversed(self.shape))

    def to(self, dtype):
        return Tensor(self.shape, dtype)

    def detach(self):
        return Tensor(self.shape, self.dtype)

    def requires_grad_(self, wanted):
        self.requires_grad = wanted
        return self

    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return self.like(*shape)

    def flatten(self, first, last):
        return self.like(*self.shape[:first], math.prod(self.shape[first:last + 1]), *self.shape[last + 1:])

    def repeat_interleave(self, times, dim):
        shape = list(self.shape)
        shape[dim] *= times
        result = self.like(*shape)
        kernel("repeat_interleave", self.nbytes() + result.nbytes())
        return result

    def triu(self, _):
        return self

    def sum(self):
        kernel("sum", self.nbytes())

    def copy_(self, other):
        kernel("copy", self.nbytes() + other.nbytes())

    def masked_fill_(self, _, value):
        kernel("masked_fill", 2 * self.nbytes())
        return self

    def __add__(self, other):
        kernel("add", 3 * self.nbytes())
        return self

    def __mul__(self, other):
        kernel("mul", 2 * self.nbytes())
        return self

    def tolist(self):
        return self.values


def randn(*shape, device=None, dtype="fp32", requires_grad=False):
    shape = shape[0] if isinstance(shape[0], (tuple, list)) else shape
    kernel("fill", math.prod(shape) * SIZES[dtype])
    return Tensor(shape, dtype, requires_grad)


ones = empty = randn


def randint(low, high, shape, device=None):
    return Tensor(shape)


def randn_like(other):
    return Tensor(other.shape, other.dtype)


empty_like = randn_like


def tensor(values, device=None):
    result = Tensor((len(values),))
    result.values = values
    return result


def product(name, a, b, extra=0):
    assert a.shape[-1] == b.shape[-2], (a.shape, b.shape)
    result = Tensor(a.shape[:-1] + b.shape[-1:], a.dtype)
    kernel(name, a.nbytes() + b.nbytes() + result.nbytes())
    return result


def matmul(a, b):
    return product("matmul", a, b)


def bmm(a, b):
    return product("bmm", a, b)


def baddbmm(_, a, b, beta, alpha):
    assert beta == 0
    return product("baddbmm", a, b)


def _scaled_mm(a, b, scale_a, scale_b, out_dtype):
    return product("scaled_mm", a, b)


def unary(name):
    def call(x, *_, **__):
        kernel(name, 2 * x.nbytes())
        return x
    return call


softmax = unary("softmax")


class autograd:
    @staticmethod
    def grad(output, inputs, weight, retain_graph):
        assert all(one.requires_grad for one in inputs)
        kernel("gradients of %d" % len(inputs), 3 * output.nbytes())


def attend(q, k, v, is_causal, enable_gqa=False):
    assert enable_gqa == (q.shape[1] != k.shape[1])
    kernel("attend", 2 * (q.nbytes() + k.nbytes()))
    return q


class Adam:
    def __init__(self, parameters, fused):
        self.parameter = parameters[0]

    def step(self):
        kernel("adam", 28 * self.parameter.numel())


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        self.time = state.now
        state.timing = not state.timing

    def elapsed_time(self, other):
        return (other.time - self.time) * 1e3


def delay(_):
    state.now += 1e-3


cuda = types.SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError, Event=Event, _sleep=delay, is_available=lambda: True, synchronize=lambda: None,
    empty_cache=lambda: None, set_device=lambda _: None, device_count=lambda: int(os.environ.get("FAKE_GPUS", "1")),
    get_device_name=lambda _: os.environ.get("FAKE_NAME", "NVIDIA A100-SXM4-80GB"),
    get_device_capability=lambda _: (8, 0),
    get_device_properties=lambda _: types.SimpleNamespace(total_memory=80 << 30, multi_processor_count=108,
                                                          L2_cache_size=40 << 20))
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=False)))
optim = types.SimpleNamespace(Adam=Adam)


def module(name, **contents):
    made = types.ModuleType("torch." + name)
    made.__dict__.update(contents)
    sys.modules["torch." + name] = made
    return made


class sdpa_kernel:
    def __init__(self, _):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


functional = module("nn.functional", embedding=lambda ids, table: unary("embedding")(table), layer_norm=unary("layer_norm"),
                    gelu=unary("gelu"), cross_entropy=unary("cross_entropy"), dropout=unary("dropout"),
                    scaled_dot_product_attention=attend)
attention = module("nn.attention", sdpa_kernel=sdpa_kernel,
                   SDPBackend=types.SimpleNamespace(FLASH_ATTENTION=1, CUDNN_ATTENTION=2))
nn = module("nn", functional=functional, attention=attention, Parameter=lambda x: Tensor(x.shape, x.dtype, True))


def init_process_group(_, timeout):
    if os.environ.get("NCCL_DEBUG") and os.environ["RANK"] == "0":
        print("node1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB", flush=True)


def two(name):
    return lambda a, b: kernel(name, max(a.nbytes(), b.nbytes()))


if os.environ.get("FAKE_AGE") == "old":  # PyTorch 1.13
    del functional.scaled_dot_product_attention
if os.environ.get("FAKE_AGE") == "middle":  # 2.0 to 2.4
    functional.scaled_dot_product_attention = lambda q, k, v, is_causal: attend(q, k, v, is_causal)

distributed = module(
    "distributed", init_process_group=init_process_group, destroy_process_group=lambda: None, barrier=lambda: None,
    get_world_size=lambda: int(os.environ["WORLD_SIZE"]), get_rank=lambda: int(os.environ["RANK"]),
    ReduceOp=types.SimpleNamespace(MAX=1), all_reduce=lambda x, op=None: kernel("all_reduce", x.nbytes()),
    reduce_scatter_tensor=two("reduce_scatter"), all_gather_into_tensor=two("all_gather"),
    all_to_all_single=two("all_to_all"), send=lambda x, _: kernel("send", x.nbytes()),
    recv=lambda x, _: kernel("recv", x.nbytes()))
