// All-reduce messages in 8 bits: quantization of a rank's part, and the sum of all ranks' messages.
//
// Message of n elements, in rows of `columns`: n bytes, padding to a multiple of 16, then an f32 scale for each
// TOGETHER columns of each row, row by row. Elements that share a scale form a stretch, processed by one warp.
// `is_float`: a byte is an e4m3 number, otherwise an integer from -127 to 127.

#include "block.cuh"
#include "e4m3.cuh"

constexpr u32 TOGETHER = 128;

// Iterates over stretches (elements that share a scale), distributed over the warps of the grid.
struct Stretch {
    u32 columns, parts;
    u64 all, index;

    DEVICE Stretch(u32 columns, u64 n) : columns(columns), parts((columns + TOGETHER - 1) / TOGETHER) {
        all = n / columns * parts;
        index = u64(blockIdx.x) * (blockDim.x / WARP) + warp_index();
    }
    DEVICE bool is_there() const { return index < all; }
    DEVICE void next() { index += u64(gridDim.x) * (blockDim.x / WARP); }
    DEVICE u32 column() const { return u32(index % parts) * TOGETHER; }
    DEVICE u64 first() const { return index / parts * columns + column(); }
    DEVICE u32 count() const { return columns - column() < TOGETHER ? columns - column() : TOGETHER; }
};

// Quantizes x into a message of bytes and scales: the largest magnitude of each stretch maps to the format's maximum. A
// non-finite element makes the scale non-finite, and with it the whole stretch.
// Grid: as for n contiguous elements. Per element: moves one element and one byte, 4 FLOPs.
KERNEL(quantize, const T* x, u8* message, u32 columns, u32 is_float, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    float* scales = reinterpret_cast<float*>(message + scales_at(n));
    for (Stretch s(columns, n); s.is_there(); s.next()) {
        float number[TOGETHER / WARP];
        // magnitudes compare like their bits, with NaN above all
        u32 largest = 0;
#pragma unroll
        for (u32 k = 0; k < TOGETHER / WARP; k++) {
            u32 i = k * WARP + lane_index();
            number[k] = i < s.count() ? to_float(x[s.first() + i]) : 0.0f;
            u32 size = __float_as_uint(number[k]) & 0x7fffffffu;
            largest = size > largest ? size : largest;
        }
#pragma unroll
        for (u32 by = WARP / 2; by > 0; by /= 2) {
            u32 other = shuffle_xor(largest, by);
            largest = other > largest ? other : largest;
        }
        float scale = __uint_as_float(largest) / (is_float ? 448.0f : 127.0f);
        bool says = scale > 0.0f && largest < 0x7f800000u;
#pragma unroll
        for (u32 k = 0; k < TOGETHER / WARP; k++) {
            u32 i = k * WARP + lane_index();
            float y = says ? number[k] / scale : 0.0f;
            if (i < s.count()) message[s.first() + i] = is_float ? to_e4m3(y) : u8(int(rintf(y)));
        }
        if (lane_index() == 0) scales[s.index] = scale;
    }
}

// Dequantizes element `at`, which is in stretch `s`.
DEVICE float said(const u8* message, const Stretch& s, u64 at, u32 is_float, u64 n) {
    float scale = reinterpret_cast<const float*>(message + scales_at(n))[s.index];
    return (is_float ? from_e4m3(message[at]) : float(static_cast<signed char>(message[at]))) * scale;
}

// out = sum of `ranks` messages of n elements, `stride` bytes apart, in f32 and in rank order, rounded once. With one
// rank, dequantizes its message. Grid as `quantize`. Per element: moves `ranks` bytes and one element, 2 x ranks FLOPs.
KERNEL(sum_eight, const u8* messages, u64 stride, T* out, u32 ranks, u32 columns, u32 is_float, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    for (Stretch s(columns, n); s.is_there(); s.next()) {
        for (u32 i = lane_index(); i < s.count(); i += WARP) {
            u64 at = s.first() + i;
            float sum = 0.0f;
            for (u32 rank = 0; rank < ranks; rank++) sum += said(messages + rank * stride, s, at, is_float, n);
            out[at] = to_number(sum);
        }
    }
}

// As `sum_eight` for ranks that share a device; `inputs`, `outputs`: arrays of message and result addresses.
KERNEL(loopback_eight, const u64* inputs, const u64* outputs, u32 ranks, u32 columns, u32 is_float, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    for (Stretch s(columns, n); s.is_there(); s.next()) {
        for (u32 i = lane_index(); i < s.count(); i += WARP) {
            u64 at = s.first() + i;
            float sum = 0.0f;
            for (u32 rank = 0; rank < ranks; rank++) {
                sum += said(reinterpret_cast<const u8*>(inputs[rank]), s, at, is_float, n);
            }
            for (u32 rank = 0; rank < ranks; rank++) reinterpret_cast<T*>(outputs[rank])[at] = to_number(sum);
        }
    }
}
