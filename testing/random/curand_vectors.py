#!/usr/bin/env python3
"""Writes testing/data/random/curand.json: what cuRAND's host generator gives, for the tests of the random fills.

Needs no GPU: `pip install nvidia-curand nvidia-cuda-runtime`, then run this with that Python from the root of the
repository. The tests themselves read the file alone.

The host generator PHILOX4_32_10 acts as 65536 threads, each with a sequence of its own (the upper half of the counter), that
take turns. A turn gives 4 values: of 32 bits from one position of the sequence (the lower half), of 64 bits from two
positions. The file has what the first threads give in their first two turns.
"""

import ctypes
import glob
import json
import struct
import sysconfig

PHILOX4_32_10 = 161
THREADS = 1 << 16
FIRST = 48
SEEDS = [0, 42, 0x9E3779B97F4A7C15]

LIBRARIES = sysconfig.get_paths()["purelib"] + "/nvidia/cu*/lib/"
for path in glob.glob(LIBRARIES + "libcudart.so.*"):
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
curand = ctypes.CDLL(glob.glob(LIBRARIES + "libcurand.so.*")[0])


def checked(status):
    assert status == 0, f"curand status {status}"


def generate(function, seed, count, kind, *arguments):
    generator = ctypes.c_void_p()
    checked(curand.curandCreateGeneratorHost(ctypes.byref(generator), PHILOX4_32_10))
    checked(curand.curandSetPseudoRandomGeneratorSeed(generator, ctypes.c_ulonglong(seed)))
    out = (kind * count)()
    checked(getattr(curand, function)(generator, out, ctypes.c_size_t(count), *arguments))
    checked(curand.curandDestroyGenerator(generator))
    return out


def excerpt(values):
    """What the first threads give in their first two turns."""
    return list(values[: FIRST * 4]) + list(values[THREADS * 4 : (THREADS + FIRST) * 4])


def bits(values, code):
    return [struct.unpack("<" + code[1], struct.pack("<" + code[0], value))[0] for value in values]


def vectors(seed):
    length = (THREADS + FIRST) * 4
    f32, f64 = ctypes.c_float, ctypes.c_double
    words = generate("curandGenerate", seed, length, ctypes.c_uint)
    uniform = generate("curandGenerateUniform", seed, length, f32)
    uniform64 = generate("curandGenerateUniformDouble", seed, length, f64)
    normal = generate("curandGenerateNormal", seed, length, f32, f32(0), f32(1))
    normal64 = generate("curandGenerateNormalDouble", seed, length, f64, f64(0), f64(1))
    return {
        "seed": seed,
        "words": excerpt(words),
        "uniform_f32_bits": bits(excerpt(uniform), "fI"),
        "uniform_f64_bits": bits(excerpt(uniform64), "dQ"),
        "normal_f32_bits": bits(excerpt(normal), "fI"),
        "normal_f64_bits": bits(excerpt(normal64), "dQ"),
    }


version = ctypes.c_int()
checked(curand.curandGetVersion(ctypes.byref(version)))
data = {"curand": version.value, "threads": FIRST, "vectors": [vectors(seed) for seed in SEEDS]}
with open("testing/data/random/curand.json", "w") as file:
    json.dump(data, file, indent=None, separators=(",", ":"))
    file.write("\n")
