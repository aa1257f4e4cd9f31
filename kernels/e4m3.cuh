// e4m3 (fp8): 4 exponent bits, 3 mantissa bits, maximum 448, one NaN.
#pragma once

#include "number.cuh"

// Rounds to nearest even; saturates at 448.
DEVICE u8 to_e4m3(float x) {
    u32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7f;        // NaN
    if (size > 0x43e00000u) return u8(sign | 0x7e); // 448
    // subnormal: units of 2^-9; 8 of them are the smallest normal number
    if (size < 0x3c800000u) return u8(sign | u32(rintf(__uint_as_float(size) * 512.0f)));
    return u8(sign | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3)));
}

DEVICE float from_e4m3(u8 bits) {
    u32 sign = u32(bits & 0x80) << 24, size = bits & 0x7f;
    if (size == 0x7f) return __uint_as_float(0x7fc00000u);
    float x = size < 8 ? float(size) / 512.0f : __uint_as_float((size + (120 << 3)) << 20);
    return __uint_as_float(sign | __float_as_uint(x));
}

// Byte offset of the scales that follow n elements, 16-byte aligned.
DEVICE u64 scales_at(u64 n) { return (n + 15) / 16 * 16; }

// Decodes the two elements in the low half of a word exactly. Before sm_89, NaN decodes to a finite number; the scale
// is NaN in that case.
DEVICE void from_e4m3_pair(u32 pair, float& low, float& high) {
#if !defined(SHIM) && __CUDA_ARCH__ >= 890
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(u16(pair)));
    low = f16_to_float(u16(halves));
    high = f16_to_float(u16(halves >> 16));
#else
    // shifted into f32, the exponents are 120 too small; the multiplication corrects that and normalizes subnormals
    low = __uint_as_float((pair & 0x80u) << 24 | (pair & 0x7fu) << 20) * 0x1p120f;
    high = __uint_as_float((pair & 0x8000u) << 16 | (pair & 0x7f00u) << 12) * 0x1p120f;
#endif
}
