// Element type T (one of -DNUMBER_F32, -DNUMBER_BF16, -DNUMBER_F16), its conversions to and from f32, and 16-byte
// packs. All arithmetic is f32; conversions to T round to nearest even. Needs no CUDA headers.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__

DEVICE float negative_infinity() { return __uint_as_float(0xff800000u); }

// ---- bitwise conversions of 16-bit formats

DEVICE float bf16_to_float(u16 bits) { return __uint_as_float(u32(bits) << 16); }

DEVICE u16 float_to_bf16(float x) {
#ifndef SHIM
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff; // the GPU's NaN
    return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

DEVICE float f16_to_float(u16 bits) {
#ifndef SHIM
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    u32 magnitude = bits & 0x7fff, sign = u32(bits & 0x8000) << 16;
    if (magnitude >= 0x7c00) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
    // as f32 the exponent is 112 too small; the multiplication corrects that and normalizes subnormals
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << 13) * 0x1p112f));
#endif
}

DEVICE u16 float_to_f16(float x) {
#ifndef SHIM
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    u32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x477ff000u) return u16(sign | 0x7c00); // 65520 and above round to infinity
    if (magnitude < 0x38800000u) { // subnormal: adding 0.5 leaves units of 2^-24 in the low bits
        u32 sum = __float_as_uint(__uint_as_float(magnitude) + 0.5f);
        return u16(sign | (sum - 0x3f000000u));
    }
    return u16(sign | (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13);
#endif
}

// Converts two numbers into one register: `low` in the low half, as in memory.
DEVICE u32 floats_to_bf16x2(float low, float high) {
#ifndef SHIM
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#else
    return u32(float_to_bf16(low)) | u32(float_to_bf16(high)) << 16;
#endif
}

DEVICE u32 floats_to_f16x2(float low, float high) {
#ifndef SHIM
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#else
    return u32(float_to_f16(low)) | u32(float_to_f16(high)) << 16;
#endif
}

// ---- T

#if defined(NUMBER_F32)

typedef float T;
DEVICE float to_float(T x) { return x; }
DEVICE T to_number(float x) { return x; }

#elif defined(NUMBER_BF16) || defined(NUMBER_F16)

struct T {
    u16 bits;
};

#if defined(NUMBER_BF16)
DEVICE float to_float(T x) { return bf16_to_float(x.bits); }
DEVICE T to_number(float x) { return T{float_to_bf16(x)}; }
// Adjacent elements in one register.
DEVICE float low_to_float(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_to_float(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE u32 to_number_pair(float low, float high) { return floats_to_bf16x2(low, high); }
#else
DEVICE float to_float(T x) { return f16_to_float(x.bits); }
DEVICE T to_number(float x) { return T{float_to_f16(x)}; }
DEVICE float low_to_float(u32 pair) { return f16_to_float(u16(pair)); }
DEVICE float high_to_float(u32 pair) { return f16_to_float(u16(pair >> 16)); }
DEVICE u32 to_number_pair(float low, float high) { return floats_to_f16x2(low, high); }
#endif

#else
#error "define NUMBER_F32, NUMBER_BF16 or NUMBER_F16"
#endif

// ---- packs: 16 bytes, the widest access of a thread

// Elements per pack: 4 or 8.
constexpr u32 PACK = 16 / sizeof(T);

struct alignas(16) Pack {
    u32 words[4];
};

// Loads 16 aligned bytes.
DEVICE Pack load_pack(const void* at) {
#ifndef SHIM
    uint4 v = *static_cast<const uint4*>(at);
    return Pack{{v.x, v.y, v.z, v.w}};
#else
    return *shim::aligned(static_cast<const Pack*>(at));
#endif
}

// Loads 16 aligned bytes that are read once and not written while the kernel runs (weights).
DEVICE Pack load_pack_once(const void* at) {
#ifndef SHIM
    Pack p;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.words[0]), "=r"(p.words[1]), "=r"(p.words[2]), "=r"(p.words[3])
                 : "l"(at));
    return p;
#else
    return *shim::aligned(static_cast<const Pack*>(at));
#endif
}

DEVICE void store_pack(void* at, const Pack& p) {
#ifndef SHIM
    *static_cast<uint4*>(at) = make_uint4(p.words[0], p.words[1], p.words[2], p.words[3]);
#else
    *shim::aligned(static_cast<Pack*>(at)) = p;
#endif
}

DEVICE void unpack(const Pack& p, float (&x)[PACK]) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#if defined(NUMBER_F32)
        x[i] = __uint_as_float(p.words[i]);
#else
        x[2 * i] = low_to_float(p.words[i]);
        x[2 * i + 1] = high_to_float(p.words[i]);
#endif
    }
}

DEVICE Pack pack(const float (&x)[PACK]) {
    Pack p;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#if defined(NUMBER_F32)
        p.words[i] = __float_as_uint(x[i]);
#else
        p.words[i] = to_number_pair(x[2 * i], x[2 * i + 1]);
#endif
    }
    return p;
}

// True if rows of `columns` elements all start 16-byte aligned, given that the first one does.
DEVICE bool packs_fit(u64 columns) { return columns % PACK == 0; }
