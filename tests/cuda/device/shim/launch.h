// Launching: what KERNEL exports of a compiled unit, and the loop over blocks.
#pragma once

#include "fibers.h"

namespace shim {

struct SharedArray {
    size_t start, bytes;
};
constexpr unsigned MAX_SHARED_ARRAYS = 256;
inline SharedArray shared_arrays[MAX_SHARED_ARRAYS];
inline unsigned shared_array_count = 0;

// A SHARED array's memory: a place of its own for each declaration, poisoned at the start of each block.
inline void* declare_shared(size_t bytes) {
    size_t start = (static_shared_used + 127) / 128 * 128;
    if (start + bytes + CANARY_BYTES > STATIC_SHARED_BYTES || shared_array_count == MAX_SHARED_ARRAYS) {
        fprintf(stderr, "shim: kernel %s: too much static shared memory in one unit\n", kernel_name);
        abort();
    }
    memset(static_shared + start, POISON, bytes);
    memset(static_shared + start + bytes, CANARY, CANARY_BYTES);
    static_shared_used = start + bytes + CANARY_BYTES;
    shared_arrays[shared_array_count++] = {start, bytes};
    return static_shared + start;
}

inline void poison_shared() {
    for (unsigned i = 0; i < shared_array_count; i++) {
        memset(static_shared + shared_arrays[i].start, POISON, shared_arrays[i].bytes);
    }
    memset(dynamic_shared, POISON, dynamic_shared_bytes);
    memset(dynamic_shared + dynamic_shared_bytes, CANARY, CANARY_BYTES);
}

inline void check_shared() {
    auto intact = [](const unsigned char* canary) {
        for (size_t i = 0; i < CANARY_BYTES; i++) {
            if (canary[i] != CANARY) return false;
        }
        return true;
    };
    for (unsigned i = 0; i < shared_array_count; i++) {
        if (!intact(static_shared + shared_arrays[i].start + shared_arrays[i].bytes)) {
            fail("written past a SHARED array of %zu bytes", shared_arrays[i].bytes);
        }
    }
    if (!intact(dynamic_shared + dynamic_shared_bytes)) {
        fail("written past %zu bytes of dynamic shared memory", dynamic_shared_bytes);
    }
}

// What a block that cannot go on waits for, by its first waiting thread.
[[noreturn]] inline void report_divergence() {
    for (unsigned i = 0; i < threads; i++) {
        Fiber& fiber = fibers[i];
        if (fiber.state != State::AtBarrier && fiber.state != State::InCollective) continue;
        current = &fiber;
        if (fiber.state == State::AtBarrier) {
            fail("waits at __syncthreads in line %d, which %u of %u threads have reached and %u never will",
                 fiber.line, at_barrier, threads - left, threads - left - at_barrier);
        }
        fail("waits in %s with mask %#x, which not all of its lanes reach", fiber.what, fiber.mask);
    }
    fail("threads are left, but none waits");
}

[[gnu::noinline]] inline void run_block() {
    left = at_barrier = ready_first = ready_count = 0;
    for (Warp& warp : warps) warp = {};
    poison_shared();
    thread_order.begin(block_index.x + 0x10000ull * block_index.y + 0x100000000ull * block_index.z);
    thread_order.each([](Fiber& fiber) { make_ready(&fiber); });
    // back here when no thread is ready, or with an error
    if (__builtin_setjmp(launcher) == 0) go_on();
    if (failed || waits) return;
    if (left != threads) report_divergence();
    check_shared();
}

// All blocks that have not ended, as if they ran beside one another: while one waits the others go on.
inline bool run_blocks() {
    Order order(uint64_t(grid_size.x) * grid_size.y * grid_size.z, 0);
    bool again = false;
    for (uint64_t i = 0; i < order.n; i++) {
        uint64_t block = order(i);
        if (block < MOST_WAITING && ended_blocks >> block & 1) continue;
        block_index = {unsigned(block % grid_size.x), unsigned(block / grid_size.x % grid_size.y),
                       unsigned(block / grid_size.x / grid_size.y)};
        waits = false;
        run_block();
        if (failed) return false;
        if (block < MOST_WAITING && !waits) ended_blocks |= 1ull << block;
        if (!waits) continue;
        again = true;
        for (Fiber& fiber : fibers) fiber.entered = false;
    }
    waits = again;
    if (!again) ended_blocks = 0;
    return !again;
}

inline pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
struct OneAtATime {
    OneAtATime() { pthread_mutex_lock(&one_at_a_time); }
    ~OneAtATime() { pthread_mutex_unlock(&one_at_a_time); }
};

inline int launch(const char* name, void (*body)(), const unsigned grid[3], const unsigned block[3],
                  unsigned shared_bytes) {
    kernel_name = name;
    failed = waits = false;
    current = nullptr;
    uint64_t count = uint64_t(block[0]) * block[1] * block[2];
    grid_size = {grid[0], grid[1], grid[2]};
    block_size = {block[0], block[1], block[2]};
    block_index = {0, 0, 0};
    if (count == 0 || count > MAX_THREADS || block[2] > 64 || uint64_t(grid[0]) * grid[1] * grid[2] == 0 ||
        grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535 || shared_bytes > 227 * 1024) {
        snprintf(error_text, sizeof error_text,
                 "kernel %s: a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads with %u bytes of shared memory "
                 "is out of bounds",
                 name, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes);
        return 1;
    }
    threads = unsigned(count);
    dynamic_shared_bytes = shared_bytes;
    thread_body = body;
    for (unsigned i = 0; i < threads; i++) {
        fibers[i].linear = i;
        fibers[i].thread = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
    }
    if (run_blocks()) return 0;
    // what had not ended is abandoned where it stands
    for (Fiber& fiber : fibers) fiber.entered = false;
    return waits ? 2 : 1;
}

// Calls a kernel with arguments as cuLaunchKernel takes them: a pointer to each.
template <class... A> struct Kernel {
    inline static void (*function)(A...);
    inline static void** arguments;
    template <size_t... I> static void call(std::index_sequence<I...>) {
        function(*static_cast<std::remove_cv_t<A>*>(arguments[I])...);
    }
    static void body() { call(std::index_sequence_for<A...>{}); }

    static int run(const char* name, void (*kernel)(A...), const unsigned* grid, const unsigned* block,
                   unsigned shared, void** given) {
        OneAtATime guard;
        function = kernel;
        arguments = given;
        return launch(name, body, grid, block, shared);
    }
};

template <class... A>
int run(const char* name, void (*kernel)(A...), const unsigned* grid, const unsigned* block, unsigned shared,
        void** arguments) {
    return Kernel<A...>::run(name, kernel, grid, block, shared, arguments);
}

// How many arguments a kernel takes, then the bytes of each.
template <class... A> struct Sizes {
    unsigned numbers[1 + sizeof...(A)] = {sizeof...(A), unsigned(sizeof(A))...};
};

template <class... A> constexpr Sizes<A...> sizes(void (*)(A...)) { return {}; }

} // namespace shim
