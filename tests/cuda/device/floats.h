// bf16 and fp16 as 16 bits, for the software libraries: exact to f32, rounded to nearest, ties to even.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace floats {
inline float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

struct Bf16 {
    uint16_t bits;
    explicit operator float() const { return of_bits(uint32_t(bits) << 16); }
    static Bf16 of(float x) {
        uint32_t u = bits_of(x);
        if (std::isnan(x)) return {uint16_t(u >> 16 | 0x40)};
        return {uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16)};
    }
};

struct F16 {
    uint16_t bits;
    explicit operator float() const {
        uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
        if (exponent == 31) return of_bits(sign | 0x7f800000 | fraction << 13);
        if (exponent) return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
        float tiny = float(fraction) * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    static F16 of(float x) {
        uint16_t sign = uint16_t(bits_of(x) >> 16 & 0x8000);
        float size = std::fabs(x);
        if (std::isnan(x)) return {uint16_t(sign | 0x7e00)};
        if (size >= 65520.0f) return {uint16_t(sign | 0x7c00)};
        // Numbers below 2^-14 are multiples of 2^-24.
        if (size < 0x1p-14f) return {uint16_t(sign | uint16_t(std::nearbyint(size * 0x1p24f)))};
        uint32_t u = bits_of(size);
        u += 0xfff + (u >> 13 & 1);
        return {uint16_t(sign | uint16_t((u >> 13) - (112u << 10)))};
    }
};

struct F32 {
    float x;
    explicit operator float() const { return x; }
    static F32 of(float x) { return {x}; }
};
} // namespace floats
