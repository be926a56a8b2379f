#!/usr/bin/env python3
"""Measures the operators of transformer training on the GPUs of this machine, for `orrery fit`.

Needs PyTorch and nothing else; `--dry-run` needs Python alone. Writes two files into a folder: orrery_profile.csv, a row an
operator (times in microseconds, sizes in elements or bytes), and machine.json, what it was measured on. Run it again with the
same folder after an interruption: rows that are there are not measured again, and rows that failed get one more try. Ends
with 1 where most rows failed, with 2 where it could not go on. One run at a time holds a folder.
"""
import argparse
import collections
import datetime
import difflib
import fcntl
import itertools
import json
import math
import os
import sys
import time
import zlib

VERSION = "3"  # of the columns and of what is timed; another version does not continue a folder
COLUMNS = ("gpu,dtype,family,op,pass,model,batch,M,N,K,heads,kv_heads,head_dim,query,keys,causal,bytes,ranks,ranks_per_node,"
           "time_us,p10_us,p90_us,repetitions,clock,status,script").split(",")
KEY = COLUMNS[:COLUMNS.index("time_us")]
FAMILIES = ["gemm", "attention", "kernel", "collective"]
KERNELS = ["norm", "activation", "rope", "residual", "embedding", "cross_entropy", "optimizer", "copy"]
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv"]
BITS = {"fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8}

# Layers measured when none are given: hidden, feed-forward, heads, key-value heads, head dimension, vocabulary, gated (1) or
# not (0). From the published configurations (GPT-3 paper, table 2.1; Llama 2 and 3 config.json).
LAYERS = {
    "gpt3-1.3b": (2048, 8192, 16, 16, 128, 50257, 0),
    "gpt3-6.7b": (4096, 16384, 32, 32, 128, 50257, 0),
    "gpt3-175b": (12288, 49152, 96, 96, 128, 50257, 0),
    "llama2-7b": (4096, 11008, 32, 32, 128, 32000, 1),
    "llama2-70b": (8192, 28672, 64, 8, 128, 32000, 1),
    "llama3-8b": (4096, 14336, 32, 8, 128, 128256, 1),
}
TOKENS = [1024, 2048, 4096, 8192]  # of one microbatch
# Experts' matrices, all in one grouped GEMM: hidden, feed-forward of an expert, experts on the GPU. From Mixtral's, Qwen3's,
# DeepSeek-V3's and GPT-OSS's config.json, all experts and the share of one of several expert ways.
EXPERTS = {
    "mixtral-8x7b": (4096, 14336, [1, 8]),
    "qwen3-30b-a3b": (2048, 768, [16, 128]),
    "qwen3-235b-a22b": (4096, 1536, [4, 16]),
    "deepseek-v3": (7168, 2048, [4, 32]),
    "gpt-oss-20b": (2880, 2880, [4, 32]),
}
EXPERT_TOKENS = [64, 256, 1024, 4096]  # of one expert
MOST_GROUPED_TOKENS = 32768
WAYS = [1, 2, 4, 8]  # tensor parallelism
GRID = [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]  # extents of M, N and K beside those of layers
SEQUENCES = [512, 1024, 2048, 4096, 8192, 16384]
KERNEL_MIB = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]  # of one 16-bit activation
COLLECTIVE_BYTES = [2 ** n for n in range(12, 31)]
MOST_TRIES = 2  # of a row that fails


def stop(found, expected, place=""):
    message = "orrery profile: %sfound %s; expected %s" % (place, found, expected)
    sys.stderr.write(" ".join(message.splitlines()) + "\n")
    sys.exit(2)


def usable_torch(otherwise="", place=""):
    """PyTorch with a GPU, or the end; `otherwise` says what goes without."""
    try:
        import torch
    except ImportError:
        stop("no PyTorch in " + sys.executable, "`pip install torch` for this Python" + otherwise, place)
    if not torch.cuda.is_available():
        stop("PyTorch %s without a usable GPU" % torch.__version__, "an NVIDIA or AMD GPU and its driver" + otherwise, place)
    return torch


# ---- What is measured ---------------------------------------------------------------------------------------------------

def layer_gemms(layers):
    """(model, M, N, K) of the forward GEMMs, y = x W^T with x [M, K] and W [N, K]."""
    for model, (hidden, ffn, heads, kv_heads, dim, vocabulary, gated) in layers:
        for ways in WAYS:
            if heads % ways or ffn % ways:
                continue
            kv = max(kv_heads // ways, 1)
            matrices = []
            if heads:
                matrices += [(((heads // ways) + 2 * kv) * dim, hidden), (hidden, heads * dim // ways)]
            if ffn:
                matrices += [((2 if gated else 1) * ffn // ways, hidden), (hidden, ffn // ways)]
            matrices.append((128 * math.ceil(vocabulary / 128 / ways), hidden))
            for n, k in dict.fromkeys(matrices):
                for m in TOKENS:
                    yield model, m, n, k


def gemm_rows(layers, types):
    # A third of the grid's cube, with all pairs of two extents: shapes that no layer has, so that tiles and waves are seen
    # apart.
    places = range(len(GRID))
    cube = [("grid", GRID[a], GRID[b], GRID[c]) for a in places for b in places for c in places if (a + b + c) % 3 == 0]
    for dtype in types:
        # The layers themselves run in 16 or 8 bits.
        for model, m, n, k in cube if BITS[dtype] == 32 else list(dict.fromkeys(layer_gemms(layers))) + cube:
            for direction in ("forward", "dgrad", "wgrad"):
                yield {"dtype": dtype, "family": "gemm", "op": "linear", "pass": direction, "model": model, "batch": 1,
                       "M": m, "N": n, "K": k}


def grouped_rows(types):
    for model, (hidden, ffn, counts) in EXPERTS.items() if "bf16" in types else ():
        for experts in counts:
            for m in EXPERT_TOKENS:
                if experts * m > MOST_GROUPED_TOKENS:
                    continue
                for n, k in ((2 * ffn, hidden), (hidden, ffn)):
                    for direction in ("forward", "dgrad", "wgrad"):
                        yield {"dtype": "bf16", "family": "gemm", "op": "grouped", "pass": direction, "model": model,
                               "batch": experts, "M": m, "N": n, "K": k}


def attention_rows(types):
    for dtype in [one for one in types if BITS[one] == 16]:
        for op in ("flash2", "cudnn", "unfused"):
            for dim in (64, 128):
                for sequence in SEQUENCES:
                    if op == "unfused" and sequence > 4096:
                        continue
                    for kv_share in (1, 4):
                        heads = 2048 // dim
                        for causal in (1, 0):
                            for direction in ("forward", "backward"):
                                yield {"dtype": dtype, "family": "attention", "op": op, "pass": direction,
                                       "batch": max(16384 // sequence, 1), "heads": heads, "kv_heads": heads // kv_share,
                                       "head_dim": dim, "query": sequence, "keys": sequence, "causal": causal}


def kernel_bytes(op, direction, elements, size):
    """What the kernel must read and write at least: SEMANTICS 7, in tensors of `elements` elements of `size` bytes."""
    if op == "optimizer":  # Adam: parameter, gradient and two moments in fp32 read, three of them written
        return 28 * elements
    tensors = {"norm": (2, 3), "activation": (2, 3), "rope": (2, 2), "residual": (3, 3), "embedding": (2, 2),
               "cross_entropy": (2, 4), "copy": (2, 2)}  # of the loss log-probabilities are written, and backward zeros
    return tensors[op][0 if direction == "forward" else 1] * size * elements


def kernel_rows(types):
    for dtype in [one for one in types if BITS[one] == 16]:
        for op in KERNELS:
            directions = ["forward", "backward"] if op in ("norm", "activation", "cross_entropy") else ["forward"]
            for direction in directions:
                for mebibytes in KERNEL_MIB:
                    elements = int(mebibytes * 2 ** 20) // 2
                    for width in (2048, 8192):
                        yield {"dtype": dtype, "family": "kernel", "op": op, "pass": direction, "model": "width %d" % width,
                               "M": elements // width, "N": width,
                               "bytes": kernel_bytes(op, direction, elements, BITS[dtype] // 8)}


def collective_rows(gpus):
    ranks = 2
    while ranks <= gpus:
        for op in COLLECTIVES:
            if op == "send_recv" and ranks > 2:
                continue
            for size in COLLECTIVE_BYTES:
                yield {"dtype": "fp32", "family": "collective", "op": op, "pass": "", "bytes": size, "ranks": ranks,
                       "ranks_per_node": ranks}
        ranks *= 2


def shuffled(rows):
    """In an order of no meaning, always the same: what --minutes leaves is then a sample of every shape."""
    return sorted(rows, key=lambda row: zlib.crc32("|".join(str(one) for one in row.values()).encode()))


def all_rows(options, machine):
    layers, types = options.layers, machine["types"]
    rows = {"gemm": lambda: shuffled(itertools.chain(gemm_rows(layers, types), grouped_rows(types))),
            "attention": lambda: attention_rows(types),
            "kernel": lambda: kernel_rows(types), "collective": lambda: collective_rows(machine["gpus"])}
    for family in FAMILIES:
        if family in options.only:
            for row in rows[family]():
                full = {column: "" for column in COLUMNS}
                full.update(row)
                full.update({"gpu": machine["gpu"], "clock": machine["clock"], "script": VERSION})
                yield full


# ---- The folder ---------------------------------------------------------------------------------------------------------

class Table:
    """The CSV of a folder: a row is handed to the system at once, a torn last line is dropped when it is opened again."""

    def __init__(self, folder, machine):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "orrery_profile.csv")
        self.file = open(self.path, "a", newline="", encoding="utf-8")
        self.lock()
        self.check_machine(os.path.join(folder, "machine.json"), machine)
        self.status, self.failures = {}, {}  # of each key: the last status, "ok" once it was; how often it failed
        self.read()
        if os.path.getsize(self.path) == 0:
            self.append(",".join(COLUMNS))

    def lock(self):
        """Until this process ends, in whatever way: two runs would measure the same rows, and each other."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stop(self.path + " in use by another run of `orrery profile`",
                 "one run a folder: wait until that one ends, or name another folder (-o)")
        except OSError as error:  # a file system without locks
            sys.stderr.write("orrery profile: %s cannot be locked (%s): start no second run in this folder\n" % (
                self.path, error.strerror))

    def check_machine(self, path, machine):
        """Rows of two machines, clocks or versions must not meet in one table."""
        same = ["gpu", "driver", "torch", "cuda", "clock", "script"]
        try:
            with open(path) as file:
                old = json.load(file)
        except FileNotFoundError:
            if os.path.getsize(self.path) > 0:
                stop(self.path + " without machine.json beside it", "both files of one run, or another folder (-o)")
            with open(path + ".part", "w") as file:
                json.dump(machine, file, indent=1)
                file.write("\n")
            os.replace(path + ".part", path)
            return
        except ValueError:
            stop(path + ", which is not JSON", "the file of the interrupted run, or another folder (-o)")
        for key in same:
            if not isinstance(old, dict) or old.get(key) != machine[key]:
                was = old.get(key) if isinstance(old, dict) else None
                stop("%s with %s %r, this run has %r" % (path, key, was, machine[key]),
                     "the same machine and script, or another folder (-o)")

    def read(self):
        with open(self.path, "rb") as file:
            content = file.read()
        whole = content[:content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with open(self.path, "r+b") as file:
                file.truncate(len(whole))
        lines = whole.decode("utf-8", "replace").splitlines()
        if lines and lines[0].split(",") != COLUMNS:
            stop(self.path + " with other columns", "a table of this script, or another folder (-o)")
        for line in lines[1:]:
            fields = line.split(",")
            if len(fields) == len(COLUMNS):
                self.note(tuple(fields[:len(KEY)]), fields[COLUMNS.index("status")])

    def note(self, key, status):
        if status != "ok":
            self.failures[key] = self.failures.get(key, 0) + 1
        if self.status.get(key) != "ok":
            self.status[key] = status

    def wants(self, row, tries):
        """Whether the row is still to be measured: a neighbour's memory or a lost GPU may have failed it once."""
        key = self.key(row)
        return self.status.get(key) != "ok" and self.failures.get(key, 0) < tries

    def append(self, line):
        self.file.write(line + "\n")
        self.file.flush()

    @staticmethod
    def key(row):
        return tuple(str(row[column]) for column in KEY)

    def add(self, row):
        self.note(self.key(row), row["status"])
        self.append(",".join(str(row[column]) for column in COLUMNS))


def filled(row, times):
    """Median and spread of times in microseconds; a reason instead of times becomes the status."""
    row = dict(row)
    if isinstance(times, str):
        row["status"] = times
        return row
    times = sorted(times)

    def at(share):
        return "%.3f" % times[min(int(share * len(times)), len(times) - 1)]
    row.update({"time_us": at(0.5), "p10_us": at(0.1), "p90_us": at(0.9), "repetitions": len(times), "status": "ok"})
    return row


# ---- Without a GPU ------------------------------------------------------------------------------------------------------

def invented_times(row):
    """Times of no machine, for tests: a roofline of 100 TFLOP/s (10 in fp32), 1 TB/s and links of 100 GB/s, and up to 10 % by
    the row's own checksum."""
    def number(column):
        return float(row[column] or 1)
    work = 2 * number("batch") * number("M") * number("N") * number("K") if row["family"] == "gemm" else 0
    if row["family"] == "attention":
        work = (4 if row["pass"] == "forward" else 10) * number("batch") * number("heads") * number("query") ** 2 * number(
            "head_dim") * (0.5 if row["causal"] else 1)
    salt = zlib.crc32("|".join(Table.key(row)).encode()) / 2 ** 32
    rate = 1e7 if row["dtype"] == "fp32" else 1e8  # operations a microsecond
    bandwidth = 1e5 if row["family"] == "collective" else 1e6  # bytes a microsecond
    middle = (5 + work / rate + number("bytes") / bandwidth) * (1 + 0.1 * salt)
    return [middle * (0.98 + 0.01 * i) for i in range(5)]


INVENTED_MACHINE = {"gpu": "A100-SXM4-80GB", "gpus": 8, "driver": "none", "torch": "none", "cuda": "none", "clock": "invented",
                    "script": VERSION, "types": ["fp32", "tf32", "fp16", "bf16"]}


# ---- The run ------------------------------------------------------------------------------------------------------------

def parse_layer(text):
    """NAME=hidden,ffn,heads,kv_heads,head_dim,vocabulary,gated, without attention where heads is 0, without MLP where ffn is"""
    name, _, numbers = text.rpartition("=")
    try:
        values = tuple(int(one) for one in numbers.split(","))
    except ValueError:
        values = ()
    whole = len(values) == 7 and min(values) >= 0 and min(values[0], values[5]) >= 1 and values[6] <= 1
    if not name or "," in name or not whole or not (values[1] or values[2]) or values[2] and min(values[3:5]) < 1:
        stop("--layer " + text, "NAME=hidden,ffn,heads,kv_heads,head_dim,vocabulary,gated with gated 0 or 1, all others above 0; "
             "heads,kv_heads,head_dim may be 0,0,0 (no attention) or ffn 0 (no MLP)")
    return name, values


class Parser(argparse.ArgumentParser):
    def error(self, message):
        stop(message, "options as `orrery profile --help` has them")


def parse(arguments):
    parser = Parser(prog="orrery profile", description=__doc__, allow_abbrev=False)
    parser.add_argument("-o", "--output", required=True, help="folder of the table; continued when it holds one")
    parser.add_argument("--only", action="append", choices=FAMILIES, help="measure these alone; may be repeated")
    parser.add_argument("--layer", action="append", default=[], metavar="NAME=...", help="a layer in place of the usual ones: "
                        "hidden,ffn,heads,kv_heads,head_dim,vocabulary,gated; may be repeated")
    parser.add_argument("--types", help="of GEMMs, attention and kernels, as fp16,bf16 (all that the GPU has)")
    parser.add_argument("--gpu-name", help="the catalog's name of the GPU, where the driver's is not known to orrery")
    parser.add_argument("--unknown-gpu", action="store_true", help="measure a GPU that the catalog does not have: `orrery fit "
                        "--cluster FILE` takes its rows where a group of that file describes it (gpu: {name: ...})")
    parser.add_argument("--retry", action="store_true", help="measure all rows that failed once more, however often they did")
    parser.add_argument("--json", action="store_true", help="print where script, table and machine lie, once they do")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="begin no row after this long; the same "
                        "command goes on later (no limit)")
    parser.add_argument("--pause", type=float, default=0, metavar="S", help="seconds between rows, to keep the GPU cool (0)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--dry-run", action="store_true", help="no GPU and no PyTorch: invented times, marked as such")
    options = parser.parse_args(arguments)
    options.only = options.only or FAMILIES
    options.layers = [parse_layer(one) for one in options.layer] or list(LAYERS.items())
    if not options.minutes > 0:
        stop("--minutes %g" % options.minutes, "a time above 0")
    if not 0 <= options.pause <= 60:
        stop("--pause %g" % options.pause, "0 to 60 seconds")
    return options


def known_gpus():
    """The names by which `orrery fit` can tell a GPU, each with the data types that the GPU has: orrery writes them beside this
    script. None without that file."""
    try:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "orrery_gpus.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def without_maker(known, name):
    for maker in known["makers"]:
        name = name[len(maker):] if name.startswith(maker) else name
    return name


def catalog_types(known, name):
    """Of the GPU of this name; None where the catalog has none."""
    if name in known["sources"]:
        return known["sources"][name]
    bare = without_maker(known, name).lower()
    return next((types for one, types in known["catalog"].items() if one.lower() == bare), None)


def refuse_unknown_gpu(known, name):
    """Hours of measuring are for nothing where `orrery fit` cannot tell the GPU."""
    by_name = {one.lower(): one for one in known["catalog"]}
    near = [by_name[one] for one in difflib.get_close_matches(without_maker(known, name).lower(), by_name, 3, 0.4)]
    stop("the GPU %r, which the catalog does not have" % name,
         "--gpu-name with a name of `orrery catalog gpus`%s, or --unknown-gpu to measure it and describe it in a cluster file for `orrery fit --cluster`" % (
             " (%s?)" % ", ".join(near) if near else ""))


def chosen_machine(options, machine):
    machine = dict(machine)
    if options.gpu_name:
        machine["gpu"] = options.gpu_name
    known = known_gpus()
    types = catalog_types(known, machine["gpu"]) if known else None
    if known and types is None and not options.unknown_gpu:
        refuse_unknown_gpu(known, machine["gpu"])
    if options.dry_run and types:
        machine["types"] = [one for one in BITS if one in types]
    if "," in machine["gpu"]:
        stop("the GPU name " + machine["gpu"], "a name without a comma (--gpu-name)")
    if options.types:
        wanted = options.types.split(",")
        missing = [one for one in wanted if one not in machine["types"]]
        if missing:
            stop("--types " + options.types, "some of " + ",".join(machine["types"]))
        machine["types"] = list(dict.fromkeys(wanted))
    return machine


def progress(options, text, last=False):
    if not options.quiet and sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text + ("\n" if last else ""))
        sys.stderr.flush()


def run(options):
    if options.dry_run:
        clock, machine = invented_times, chosen_machine(options, INVENTED_MACHINE)
    else:
        torch = usable_torch(", or --dry-run")
        import orrery_timing
        machine = chosen_machine(options, orrery_timing.describe(torch, VERSION))
        clock = orrery_timing.Clock(torch, machine)
    machine["started"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    table = Table(options.output, machine)
    wanted = list(all_rows(options, machine))
    measure(options, table, clock, wanted)
    failed = mostly_failed(wanted, table)
    for line in failed:
        sys.stderr.write("orrery profile: " + line + "; --retry measures them again, once the cause is gone\n")
    if options.unknown_gpu and not options.quiet:
        sys.stderr.write("`orrery fit --profiles %s --cluster FILE` takes these rows where a group of FILE describes their GPU: "
                         "gpu: {name: %s, ...}\n" % (options.output, machine["gpu"]))
    if options.json:
        print(json.dumps({"script": os.path.abspath(__file__), "table": table.path,
                          "machine": os.path.join(options.output, "machine.json")}, indent=2))
    return 1 if failed else 0


def measure(options, table, clock, wanted):
    rows = [row for row in wanted if table.wants(row, sys.maxsize if options.retry else MOST_TRIES)]
    begun, failed, done = time.time(), 0, 0
    for i, row in enumerate(rows):
        if time.time() - begun > 60 * options.minutes:
            break
        left = (time.time() - begun) / i * (len(rows) - i) if i else 0
        progress(options, "%d of %d, %s %s, %d min left" % (i, len(rows), row["family"], row["op"], math.ceil(left / 60)))
        row = filled(row, clock(row))
        failed += row["status"] != "ok"
        table.add(row)
        done = i + 1
        lost = getattr(clock, "lost", None)
        if lost:
            stop("%s, after which nothing more can be measured; %d rows are in %s" % (lost, i + 1, table.path),
                 "a GPU that works: run this again, it goes on where it was")
        time.sleep(options.pause)
    progress(options, "", last=True)
    if not options.quiet:
        left = ", %d are left" % (len(rows) - done) if done < len(rows) else ""
        print("measured %d rows, %d of them failed, %d were there%s; %s" % (
            done, failed, len(wanted) - len(rows), left, table.path), file=sys.stderr)


def mostly_failed(wanted, table):
    """A sentence for each family most of whose rows failed. Single ones always do, as types and head sizes that a kernel does
    not have; those count where little else is left."""
    sentences = []
    for family in FAMILIES:
        keys = [table.key(row) for row in wanted if row["family"] == family]
        statuses = [table.status[key] for key in keys if key in table.status]  # --minutes may have left others
        failed = [one for one in statuses if one != "ok"]
        broken = [one for one in failed if not one.startswith("unsupported")]
        if 2 * len(broken) > len(statuses) or 10 * len(failed) > 9 * len(statuses):
            usual, count = collections.Counter(failed).most_common(1)[0]
            sentences.append("%d of %d %s rows failed, %d of them with %r" % (
                len(failed), len(statuses), family, count, usual))
    return sentences


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    try:
        sys.exit(run(options))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        stop("%s: %s" % (error.filename or options.output, error.strerror), "a folder that can be written, with room")
