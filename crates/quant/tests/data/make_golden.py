"""Makes dot.json and encode.json: what the tests of foredraft-quant expect, computed without it.

    pip install numpy gguf==0.19.0
    python make_golden.py            (beside dequantize.json)

Blocks are taken apart here by numpy from the layout of ggml's structs; fused multiply-adds are computed in
exact rational arithmetic and rounded once to f32, ties to even.
"""

import base64
import json
import math
import pathlib
from fractions import Fraction

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def b64(array):
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def f16(block, at):
    return float(block[at : at + 2].view(np.float16)[0])


def nibbles(qs):
    return np.concatenate([qs & 15, qs >> 4]).astype(int)


def fifth(qh):
    return np.unpackbits(qh, bitorder="little").astype(int) * 16


def scales_k4(b):
    """The 6-bit scales and minima of Q4_K and Q5_K."""
    sc = [b[j] & 63 for j in range(4)] + [(b[j + 8] & 15) | (b[j] >> 6) << 4 for j in range(4)]
    m = [b[j + 4] & 63 for j in range(4)] + [(b[j + 8] >> 4) | (b[j + 4] >> 6) << 4 for j in range(4)]
    return sc, m


def unpack(kind, b):
    """(width of a sub-block, codes, exact scales, exact minima) of one block; minima None without them."""
    ints = [int(v) for v in b]
    if kind == "Q4_0":
        return 32, nibbles(b[2:]) - 8, [f16(b, 0)], None
    if kind == "Q4_1":
        return 32, nibbles(b[4:]), [f16(b, 0)], [f16(b, 2)]
    if kind == "Q5_0":
        return 32, nibbles(b[6:]) + fifth(b[2:6]) - 16, [f16(b, 0)], None
    if kind == "Q5_1":
        return 32, nibbles(b[8:]) + fifth(b[4:8]), [f16(b, 0)], [f16(b, 2)]
    if kind == "Q8_0":
        return 32, b[2:].view(np.int8).astype(int), [f16(b, 0)], None
    if kind == "IQ4_NL":
        return 32, IQ4_NL[nibbles(b[2:])], [f16(b, 0)], None
    if kind == "Q2_K":
        d, dmin = f16(b, 80), f16(b, 82)
        q = [ints[16 + 32 * h + l] >> 2 * j & 3 for h in range(2) for j in range(4) for l in range(32)]
        return 16, np.array(q), [d * (v & 15) for v in ints[:16]], [-dmin * (v >> 4) for v in ints[:16]]
    if kind == "Q3_K":
        d = f16(b, 108)
        low = [v & 15 for v in ints[96:104]] + [v >> 4 for v in ints[96:104]]
        sc = [(low[s] | (ints[104 + s % 4] >> 2 * (s // 4) & 3) << 4) - 32 for s in range(16)]
        q = [
            (ints[32 + 32 * h + l] >> 2 * j & 3) - (0 if ints[l] >> (4 * h + j) & 1 else 4)
            for h in range(2)
            for j in range(4)
            for l in range(32)
        ]
        return 16, np.array(q), [d * s for s in sc], None
    if kind in ("Q4_K", "Q5_K"):
        d, dmin = f16(b, 0), f16(b, 2)
        sc, m = scales_k4(ints[4:16])
        ql = ints[16:] if kind == "Q4_K" else ints[48:]
        q = [ql[32 * (s // 2) + l] >> 4 * (s % 2) & 15 for s in range(8) for l in range(32)]
        if kind == "Q5_K":
            q = [v + 16 * (ints[16 + i % 32] >> (i // 32) & 1) for i, v in enumerate(q)]
        return 32, np.array(q), [d * s for s in sc], [-dmin * v for v in m]
    if kind == "Q6_K":
        d = f16(b, 208)
        q = []
        for h in range(2):
            ql, qh = ints[64 * h : 64 * h + 64], ints[128 + 32 * h : 160 + 32 * h]
            q += [(ql[l] & 15 | (qh[l] & 3) << 4) - 32 for l in range(32)]
            q += [(ql[32 + l] & 15 | (qh[l] >> 2 & 3) << 4) - 32 for l in range(32)]
            q += [(ql[l] >> 4 | (qh[l] >> 4 & 3) << 4) - 32 for l in range(32)]
            q += [(ql[32 + l] >> 4 | (qh[l] >> 6) << 4) - 32 for l in range(32)]
        return 16, np.array(q), [d * int(s) for s in b[192:208].view(np.int8)], None
    raise ValueError(kind)


def rounded(exact):
    """A rational number rounded once to f32, ties to even."""
    if exact == 0:
        return np.float32(0)
    exponent = math.frexp(abs(exact))[1] - 1
    if Fraction(2) ** exponent > abs(exact):  # the conversion to float rounded up to a power of two
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return np.float32(float(round(exact / unit) * unit))


def fma(a, b, c):
    return rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def quantize_activations(x):
    codes, scales = [], []
    for block in x.reshape(-1, 32):
        amax = np.abs(block).max()
        if amax < np.float32(1e-30):
            codes.append(np.zeros(32, int))
            scales.append(np.float32(0))
        else:
            codes.append(np.rint(block * (np.float32(127) / amax)).astype(int))
            scales.append(amax / np.float32(127))
    codes = np.concatenate(codes)
    return codes, np.array(scales, np.float32), codes.reshape(-1, 16).sum(axis=1)


def dot(kind, blocks, codes, scales, sums):
    acc, k = np.float32(0), 0
    for block in blocks:
        width, w, scales_w, mins = unpack(kind, block)
        for s in range(len(w) // width):
            scale_x = scales[k // 32]
            idot = int(w[s * width : (s + 1) * width] @ codes[k : k + width])
            assert float(np.float32(scales_w[s])) == scales_w[s], "scales are exact in f32"
            acc = fma(idot, np.float32(scales_w[s]) * scale_x, acc)
            if mins is not None:
                acc = fma(np.float32(mins[s]), np.float32(codes[k : k + width].sum()) * scale_x, acc)
            k += width
    return acc


def check(kind, blocks, weights):
    """The parts found here make the weights that the gguf package computed."""
    made = []
    for block in blocks:
        width, w, scales, mins = unpack(kind, block)
        scales = np.repeat(np.array(scales, np.float32), width)
        mins = None if mins is None else np.repeat(np.array(mins, np.float32), width)
        product = scales * w.astype(np.float32)
        made.append(product if mins is None else product + mins)
    assert (np.concatenate(made) == weights).all(), kind


def main():
    golden = json.loads((HERE / "dequantize.json").read_text())
    rng = np.random.default_rng(20240607)
    x = (rng.standard_normal(1536) * np.exp(rng.standard_normal(1536))).astype(np.float32)
    x[32:64] = 0
    x[96:128] *= np.float32(1e-31)
    x[128:160] = np.arange(32) * 4 + 0.5  # with the next line: inverse exactly 1, ties everywhere
    x[159] = -127
    codes, scales, sums = quantize_activations(x)
    out = {"x": b64(x), "codes": b64(codes.astype(np.int8)), "scales": b64(scales), "sums": b64(sums.astype(np.int32)), "dot": {}}
    for kind, entry in golden.items():
        stored = np.frombuffer(base64.b64decode(entry["bytes_base64"]), np.uint8)
        weights = np.frombuffer(base64.b64decode(entry["f32_le_base64"]), np.float32)
        if entry["block_elements"] == 1:
            acc = np.float32(0)
            for w, v in zip(weights, x):
                acc = fma(w, v, acc)
        else:
            blocks = stored.reshape(-1, entry["block_bytes"])
            check(kind, blocks, weights)
            acc = dot(kind, blocks, codes, scales, sums)
        out["dot"][kind] = int(acc.view(np.uint32))
    (HERE / "dot.json").write_text(json.dumps(out, indent=1) + "\n")

    values = (rng.standard_normal(8 * 32) * 0.05).astype(np.float32)
    values[32:64] += np.float32(0.5)
    encoded = {"values": b64(values)}
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        encoded[kind] = b64(gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind]))
    (HERE / "encode.json").write_text(json.dumps(encoded, indent=1) + "\n")


if __name__ == "__main__":
    main()
