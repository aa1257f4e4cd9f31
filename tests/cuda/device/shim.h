// CUDA for a CPU, to check the arithmetic of kernels/*.cu without a GPU: included in front of a unit
// (`g++ -x c++ -std=c++17 -O2 -fPIC -shared -include shim.h -I kernels unit.cu`), it makes a shared object of it.
//
// Each KERNEL(name, ...) is exported as
//   int shim_NAME(const unsigned grid[3], const unsigned block[3], unsigned dynamic_shared_bytes, void** args)
// (0: it ran; 1: `shim_error()` says what was wrong; 2: a block waits for another kernel) and `const unsigned shim_NAME_args[]`: how many arguments
// it takes, then the bytes of each. Beside them: shim_error, shim_clock, shim_order, shim_ended_blocks, shim_rest. Any thread may call them,
// one at a time.
//
// Faithful where kernels can go wrong: barriers and collectives that not everybody reaches, vector accesses
// that are not aligned, shared memory that is read before it is written (poisoned) or written past its end.
// Not faithful: timing, memory order between blocks (one runs at a time, so a block must not wait for another).
#pragma once
#define SHIM 1

#undef _FORTIFY_SOURCE // its longjmp refuses to jump to another stack
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS // the C library's alone: C++'s special functions take 0.09 s a unit
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h> // <mutex> would take as long to read as all the others
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>

// Units are loaded beside one another, and each has its own fibers and shared memory: nothing but the
// exports is visible (and unique in a process, as inline variables would be).
#pragma GCC visibility push(hidden)
#define SHIM_EXPORT extern "C" __attribute__((used, visibility("default")))

// Where accesses are noted, those of the device itself are none of a kernel's, and most of all.
#define SHIM_UNSEEN __attribute__((no_sanitize_thread))

#include "shim/copies.h"
#include "shim/fibers.h"
#include "shim/launch.h"
#include "shim/warp.h"

// ---- vocabulary
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define threadIdx (shim::current->thread)
#define blockIdx (shim::block_index)
#define blockDim (shim::block_size)
#define gridDim (shim::grid_size)
constexpr int warpSize = 32;

#ifdef STAMPED
#define STAMP_PARAMETER , unsigned long long* stamps_at
#else
#define STAMP_PARAMETER
#endif
#define KERNEL(name, ...)                                                                                     \
    static void name(__VA_ARGS__ STAMP_PARAMETER);                                                                            \
    SHIM_EXPORT int shim_##name(const unsigned* grid, const unsigned* block, unsigned shared, void** args) {  \
        return shim::run(#name, name, grid, block, shared, args);                                             \
    }                                                                                                         \
    extern "C" {                                                                                              \
    __attribute__((used, visibility("default"))) auto shim_##name##_args = shim::sizes(name);                 \
    }                                                                                                         \
    static void name(__VA_ARGS__ STAMP_PARAMETER)
#define BOUNDED_KERNEL(name, threads, blocks, ...) KERNEL(name, __VA_ARGS__)
#ifdef STAMPED
// Every kernel here says when it ran.
extern "C" {
__attribute__((used, visibility("default"))) extern const int shim_stamped = 1;
}
#endif

// A reference to an array that all threads of a block share.
#define SHARED(type, name, n)                                                                                 \
    static void* const name##_memory = shim::declare_shared(sizeof(type) * (n));                              \
    type(&name)[n] = *static_cast<type(*)[n]>(name##_memory)
#define DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(shim::dynamic_shared)

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace shim {
// Vector accesses trap on a GPU where their address is not a multiple of their size.
template <class V> V* aligned(V* at) {
    if (reinterpret_cast<uintptr_t>(at) % sizeof(V)) fail("%p is not aligned to %zu bytes", (const void*)at, sizeof(V));
    return at;
}
} // namespace shim

// ---- barriers and fences
inline void __syncthreads(int line = __builtin_LINE()) { shim::barrier(line); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- atomics: threads change only at barriers, collectives and sleeps
template <class V> V atomicAdd(V* at, std::common_type_t<V> x) { V old = *at; *at = old + x; return old; }
template <class V> V atomicExch(V* at, std::common_type_t<V> x) { V old = *at; *at = x; return old; }
template <class V> V atomicMax(V* at, std::common_type_t<V> x) { V old = *at; if (x > old) *at = x; return old; }
template <class V> V atomicMin(V* at, std::common_type_t<V> x) { V old = *at; if (x < old) *at = x; return old; }
template <class V> V atomicXor(V* at, std::common_type_t<V> x) { V old = *at; *at = old ^ x; return old; }
template <class V> V atomicOr(V* at, std::common_type_t<V> x) { V old = *at; *at = old | x; return old; }
template <class V> V atomicCAS(V* at, std::common_type_t<V> expected, std::common_type_t<V> x) {
    V old = *at;
    if (old == expected) *at = x;
    return old;
}

// ---- clocks
namespace shim {
// Where nobody sets one: a clock that runs by being read and slept on, the same in every run.
inline unsigned long long own_time = 0;
inline unsigned long long own_now(void*) { return own_time += 32; }
inline void own_sleep(void*, unsigned ns) { own_time += ns; }
inline unsigned long long (*clock_now)(void*) = own_now;
inline void (*clock_sleep)(void*, unsigned) = own_sleep;
inline void* clock_user = nullptr;
inline unsigned long long globaltimer() { return clock_now(clock_user); }
} // namespace shim
inline void __nanosleep(unsigned ns) {
    shim::clock_sleep(shim::clock_user, ns);
    shim::step_back();
}
inline long long clock64() { return static_cast<long long>(shim::globaltimer()); }

// ---- arithmetic
#define rsqrtf(x) (1.0f / sqrtf(x)) /* newer C libraries have a function of this name */
#define __expf(x) expf(x) /* glibc declares a function of this name */
#define __logf(x) logf(x)
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
inline double __longlong_as_double(long long bits) { double x; memcpy(&x, &bits, 8); return x; }
inline long long __double_as_longlong(double x) { long long bits; memcpy(&bits, &x, 8); return bits; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <class V> V min(V a, V b) { return b < a ? b : a; }
template <class V> V max(V a, V b) { return a < b ? b : a; }
template <class V> V __ldg(const V* at) { return *at; }
template <class V> V __ldcs(const V* at) { return *at; }
template <class V> V __ldcg(const V* at) { return *at; }
template <class V> void __stcs(V* at, V x) { *at = x; }

// ---- what the launcher asks and sets

// What was wrong with the last launch: kernel, block, thread.
SHIM_EXPORT inline const char* shim_error() { return shim::error_text; }

// The order in which blocks, and the threads of a block, run: ascending for 0, else by the seed.
SHIM_EXPORT inline void shim_order(unsigned long long seed) { shim::order_seed = seed; }

// Which blocks of the next launch have ended before, a bit each; after a launch that waits, all that have.
SHIM_EXPORT inline unsigned long long shim_ended_blocks(unsigned long long blocks) {
    unsigned long long before = shim::ended_blocks;
    shim::ended_blocks = blocks;
    return before;
}

// Gives the memory of stacks back until the next launch: a process may have only so many mappings.
SHIM_EXPORT inline void shim_rest() { shim::give_stacks_back(); }

// The clock behind %globaltimer and __nanosleep; null: the own one.
SHIM_EXPORT inline void shim_clock(unsigned long long (*now_ns)(void*), void (*sleep_ns)(void*, unsigned),
                                   void* user) {
    shim::clock_now = now_ns ? now_ns : shim::own_now;
    shim::clock_sleep = sleep_ns ? sleep_ns : shim::own_sleep;
    shim::clock_user = user;
}
