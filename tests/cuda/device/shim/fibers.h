// A fiber for each CUDA thread of a block, all within one OS thread: barriers and warp collectives switch
// to the next fiber that can go on. One block runs at a time.
//
// A fiber is entered once with makecontext and then lives on: it runs a thread of one block, parks, and runs
// a thread of the next. Switches are the compiler's own setjmp and longjmp: a few registers, no calls. A block in which nobody can go on
// although threads are left has diverged; that is reported and ends the launch.
#pragma once

namespace shim {

struct Index3 {
    unsigned x, y, z;
};

using Jump = void*[5];

enum class State { Parked, Ready, AtBarrier, InCollective, Left };

struct Fiber {
    Index3 thread{};        // threadIdx
    unsigned linear = 0;    // its place in the block
    State state = State::Parked;
    bool entered = false;   // whether `jump` holds its place in fiber_main
    int line = 0;           // of the barrier it waits at
    const char* what = "";  // the collective it waits in
    unsigned mask = 0;      // and its lanes
    const void* in = nullptr;
    void* out = nullptr;
    Jump jump;
};

constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 256 * 1024; // of address space; pages come as they are touched
constexpr size_t PAGE_BYTES = 4096;
constexpr size_t STATIC_SHARED_BYTES = 1024 * 1024;
constexpr size_t DYNAMIC_SHARED_BYTES = 256 * 1024;
constexpr size_t CANARY_BYTES = 64;
constexpr unsigned char POISON = 0xff;  // NaN in every format
constexpr unsigned char CANARY = 0xa5;

// The lanes of a warp that wait in a collective and those that have left the kernel, a bit each; and whether those that
// wait do so in different ones.
struct Warp {
    unsigned waiting, left;
    bool mixed;
};

// Everything about the launch that is going on. One launch at a time in a library: see `launch.h`.
inline Fiber fibers[MAX_THREADS];
inline Fiber* current = nullptr;
inline Warp warps[MAX_THREADS / 32];
inline Index3 block_index, block_size, grid_size;
inline const char* kernel_name = "";
inline void (*thread_body)() = nullptr;
inline unsigned threads = 0, left = 0, at_barrier = 0;
inline Fiber* first_at_barrier = nullptr;
inline unsigned ready[MAX_THREADS * 2];
inline unsigned ready_first = 0, ready_count = 0;
inline Jump launcher;
inline bool failed = false;
// A block stands where another kernel has to come first; and which blocks of a launch that has such have ended, a bit each.
constexpr unsigned MOST_WAITING = 64;
inline bool waits = false;
inline uint64_t ended_blocks = 0;
inline char error_text[1024] = "";

alignas(128) inline unsigned char static_shared[STATIC_SHARED_BYTES];
inline size_t static_shared_used = 0;
alignas(128) inline unsigned char dynamic_shared[DYNAMIC_SHARED_BYTES + CANARY_BYTES];
inline size_t dynamic_shared_bytes = 0;

inline uint64_t order_seed = 0;

// A permutation of 0..n from the seed and a number: i -> (i * factor + shift) mod n, factor prime to n.
struct Order {
    uint64_t n = 0, factor = 1, shift = 0;
    Order() = default;
    Order(uint64_t n, uint64_t salt) : n(n) {
        if (order_seed == 0 || n < 2) return;
        uint64_t z = order_seed * 0x9e3779b97f4a7c15 + salt;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        z ^= z >> 31;
        shift = z % n;
        factor = (z >> 32) % n;
        auto divisor = [](uint64_t a, uint64_t b) {
            while (b) std::swap(a %= b, b);
            return a;
        };
        while (divisor(factor, n) != 1) factor = (factor + 1) % n;
    }
    uint64_t operator()(uint64_t i) const { return order_seed == 0 ? i : (i * factor + shift) % n; }
};
// In even orders but 0 a warp goes on alone for as long as it can, through its collectives up to the next barrier:
// what it does too early is seen. In the others all warps go from collective to collective together.
inline bool warps_alone() { return order_seed != 0 && order_seed % 2 == 0; }

// The order of a block's threads.
struct ThreadOrder {
    Order warps, lanes, all;
    void begin(uint64_t block) {
        all = Order(threads, 3 * block + 1);
        warps = Order((threads + 31) / 32, 3 * block + 2);
        lanes = Order(32, 3 * block + 3);
    }
    template <class F> void each(F f) const {
        if (!warps_alone()) {
            for (unsigned i = 0; i < threads; i++) f(fibers[all(i)]);
            return;
        }
        for (unsigned warp = 0; warp < warps.n; warp++) {
            for (unsigned lane = 0; lane < 32; lane++) {
                uint64_t thread = warps(warp) * 32 + lanes(lane);
                if (thread < threads) f(fibers[thread]);
            }
        }
    }
};
inline ThreadOrder thread_order;

SHIM_UNSEEN inline void make_ready(Fiber* fiber) {
    fiber->state = State::Ready;
    ready[(ready_first + ready_count++) % (MAX_THREADS * 2)] = fiber->linear;
}

// Before all that are ready.
SHIM_UNSEEN inline void make_first(Fiber* fiber) {
    fiber->state = State::Ready;
    ready_first = (ready_first + MAX_THREADS * 2 - 1) % (MAX_THREADS * 2);
    ready[ready_first] = fiber->linear;
    ready_count++;
}

void fiber_main();

// The stacks of all fibers, beside one another; none while no fiber has been entered.
inline char* stacks = nullptr;

// A fiber's, which is entered for the first time: all but its last page, so that an overflow faults.
inline char* stack_of(unsigned fiber) {
    if (!stacks) {
        void* all = mmap(nullptr, MAX_THREADS * STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all != MAP_FAILED) stacks = static_cast<char*>(all);
    }
    char* stack = stacks + fiber * STACK_BYTES;
    if (!stacks || mprotect(stack + PAGE_BYTES, STACK_BYTES - PAGE_BYTES, PROT_READ | PROT_WRITE)) {
        perror("shim: a stack of a CUDA thread");
        abort();
    }
    return stack;
}

// Leaves the running context for the next fiber that is ready, or for the launcher where none is.
[[gnu::noinline]] SHIM_UNSEEN inline void go_on() {
    if (ready_count == 0) {
        current = nullptr;
        __builtin_longjmp(launcher, 1);
    }
    Fiber* next = &fibers[ready[ready_first]];
    ready_first = (ready_first + 1) % (MAX_THREADS * 2);
    ready_count--;
    current = next;
    if (next->entered) __builtin_longjmp(next->jump, 1);
    next->entered = true;
    char* stack = stack_of(next->linear);
    static ucontext_t context; // read when it is set, and not again
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    // at places of their own in a page: else all would want the same few lines of the first-level cache
    context.uc_stack.ss_size = STACK_BYTES - next->linear % 64 * 64;
    context.uc_link = nullptr;
    makecontext(&context, reinterpret_cast<void (*)()>(fiber_main), 0);
    setcontext(&context);
}

// Between launches, when every fiber is parked for good: the next launch enters them anew.
inline void give_stacks_back() {
    if (stacks) munmap(stacks, MAX_THREADS * STACK_BYTES);
    stacks = nullptr;
    for (Fiber& fiber : fibers) fiber.entered = false;
}

// A library that is unloaded takes its stacks along.
[[gnu::destructor]] static void unloaded() { give_stacks_back(); }

// Parks the running fiber until somebody makes it ready.
[[gnu::noinline]] SHIM_UNSEEN inline void yield() {
    Fiber* self = current;
    if (__builtin_setjmp(self->jump) == 0) go_on();
}

// Ends the launch with an error; does not return.
[[noreturn, gnu::noinline, gnu::format(printf, 1, 2)]] inline void fail(const char* format, ...) {
    int used = 0;
    if (current) {
        used = snprintf(error_text, sizeof error_text, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): ",
                        kernel_name, block_index.x, block_index.y, block_index.z, current->thread.x,
                        current->thread.y, current->thread.z);
    } else {
        used = snprintf(error_text, sizeof error_text, "kernel %s, block (%u, %u, %u): ", kernel_name,
                        block_index.x, block_index.y, block_index.z);
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_text + used, sizeof error_text - used, format, arguments);
    va_end(arguments);
    failed = true;
    __builtin_longjmp(launcher, 1);
}

// Ends the block where a thread waits for another kernel, of which this one knows nothing: the launch is to be repeated for
// blocks that have not ended, which begin anew. So what a block does before it waits must do no harm when it is done twice.
[[noreturn, gnu::noinline]] inline void come_back() {
    if (uint64_t(grid_size.x) * grid_size.y * grid_size.z > MOST_WAITING) fail("waits in a grid of more than %u blocks", MOST_WAITING);
    waits = true;
    __builtin_longjmp(launcher, 1);
}

SHIM_UNSEEN inline void release_barrier() {
    at_barrier = 0;
    thread_order.each([](Fiber& fiber) {
        if (fiber.state == State::AtBarrier) make_ready(&fiber);
    });
}

inline void begin_copies();
inline void end_copies();

SHIM_UNSEEN inline void fiber_main() {
    for (;;) {
        begin_copies();
        thread_body();
        end_copies();
        current->state = State::Left;
        left++;
        warps[current->linear / 32].left |= 1u << current->linear % 32;
        // those that wait at a barrier wait for the threads that are left
        if (at_barrier > 0 && at_barrier + left == threads) release_barrier();
        yield();
    }
}

// __syncthreads: all threads that have not left the kernel, at one place of the source.
SHIM_UNSEEN inline void barrier(int line) {
    if (at_barrier == 0) first_at_barrier = current;
    // those that wait are all at the same one
    if (const Fiber& first = *first_at_barrier; at_barrier > 0 && first.line != line) {
        fail("__syncthreads in line %d while thread (%u, %u, %u) waits at the one in line %d", line, first.thread.x,
             first.thread.y, first.thread.z, first.line);
    }
    current->line = line;
    current->state = State::AtBarrier;
    at_barrier++;
    if (at_barrier + left == threads) {
        current->state = State::Ready; // it goes on at once, the others after it
        release_barrier();
        return;
    }
    yield();
}

// The lanes of a warp that take part in a collective: what each brought, and where its result goes.
struct Lanes {
    unsigned mask;
    const void* in[32];
    void* out[32];
};

SHIM_UNSEEN inline bool waits_in(const Fiber& other, const char* what, unsigned mask) {
    return other.mask == mask && (other.what == what || strcmp(other.what, what) == 0);
}

// A warp collective over the lanes of `mask`: the last that arrives computes everybody's results. Lanes that wait elsewhere end
// the launch; where all that wait do so in the same collective, one of them stands for all.
SHIM_UNSEEN inline void collective(unsigned mask, const char* what, const void* in, void* out, void (*compute)(Lanes&)) {
    unsigned lane = current->linear % 32, first = current->linear - lane, self = 1u << lane, others = mask & ~self;
    Warp& warp = warps[first / 32];
    if (!(mask & self)) fail("%s with mask %#x by lane %u, which is not in it", what, mask, lane);
    unsigned missing = threads - first < 32 ? others >> (threads - first) << (threads - first) : 0;
    if (missing) fail("%s with mask %#x, but lane %u does not exist", what, mask, __builtin_ctz(missing));
    if (others & warp.left) {
        fail("%s with mask %#x, but lane %u has left the kernel", what, mask, __builtin_ctz(others & warp.left));
    }
    current->what = what;
    current->mask = mask;
    current->in = in;
    current->out = out;
    unsigned waiting = others & warp.waiting;
    for (unsigned rest = waiting; rest; rest = warp.mixed ? rest & (rest - 1) : 0) {
        const Fiber& other = fibers[first + __builtin_ctz(rest)];
        if (waits_in(other, what, mask)) continue;
        fail("%s with mask %#x while lane %u waits in %s with mask %#x", what, mask, other.linear % 32, other.what,
             other.mask);
    }
    if (waiting != others) {
        if (warp.waiting && !waits_in(fibers[first + __builtin_ctz(warp.waiting)], what, mask)) warp.mixed = true;
        warp.waiting |= self;
        current->state = State::InCollective;
        yield();
        return;
    }
    Lanes lanes;
    lanes.mask = mask;
    lanes.in[lane] = in;
    lanes.out[lane] = out;
    for (unsigned rest = others; rest; rest &= rest - 1) {
        unsigned i = __builtin_ctz(rest);
        lanes.in[i] = fibers[first + i].in;
        lanes.out[i] = fibers[first + i].out;
    }
    compute(lanes);
    warp.waiting &= ~mask;
    warp.mixed = warp.mixed && warp.waiting;
    for (unsigned rest = others; rest; rest &= rest - 1) {
        Fiber* fiber = &fibers[first + __builtin_ctz(rest)];
        if (warps_alone()) {
            make_first(fiber);
        } else {
            make_ready(fiber);
        }
    }
}

// Lets the other threads go first.
inline void step_back() {
    make_ready(current);
    yield();
}

} // namespace shim
