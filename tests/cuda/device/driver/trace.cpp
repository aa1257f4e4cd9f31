// Which bytes of device memory a kernel reads and writes, exactly. Kernels that are compiled for it (with
// FAKE_NVRTC_TRACE=1, by the compiler's instrumentation for thread sanitizers, without a sanitizer) call the
// functions here at every access. What a kernel reads after it has written it itself is no read from
// outside.
#include "state.h"

#include <algorithm>

namespace {
constexpr uint64_t GRAIN = 2; // bytes that are told apart

struct Touched {
    uint64_t start, end;
    std::vector<uint8_t> grains; // 1 read, 2 written
};
std::map<uint64_t, Touched> touched;
bool on = false;

// What is behind a page: no two allocations share one. Accesses are many, most of them of stacks and of what this device has
// of its own: the table has to fit the cache, and what is known is found without a call.
struct Page {
    uint64_t key = 0; // the number of the page and, in its lower bits, of the launch
    Touched *touched = nullptr;
};
constexpr unsigned PAGE_BITS = 12, LAUNCH_BITS = 16;
Page pages[1 << PAGE_BITS];
uint64_t launch = 0;

Touched *find(uint64_t address) {
    auto &all = state().allocations;
    auto after = all.upper_bound(address | 4095);
    if (after == all.begin()) return nullptr;
    const Allocation &found = std::prev(after)->second;
    if (address >= found.address + found.bytes || found.host) return nullptr;
    auto [at, fresh] = touched.try_emplace(found.address);
    if (fresh) at->second = {found.address, found.address + found.bytes,
                             std::vector<uint8_t>((found.bytes + GRAIN - 1) / GRAIN)};
    return &at->second;
}

[[gnu::noinline]] void look_up(Page &page, uint64_t key, uint64_t address) { page = {key, find(address)}; }

[[gnu::noinline]] void mark(Touched *one, uint64_t address, uint64_t bytes, bool write) {
    if (address < one->start) return;
    uint64_t end = std::min(address + bytes, one->end);
    for (uint64_t at = (address - one->start) / GRAIN; at * GRAIN + one->start < end; at++) {
        uint8_t &grain = one->grains[at];
        if (write) grain |= 2;
        else if (!(grain & 2)) grain |= 1;
    }
}

inline void touch(const void *pointer, uint64_t bytes, bool write) {
    if (!on) return;
    auto address = reinterpret_cast<uint64_t>(pointer);
    uint64_t number = address >> 12, key = number << LAUNCH_BITS | launch;
    // mixed, since stacks lie powers of two apart
    Page &page = pages[number * 0x9e3779b97f4a7c15ull >> (64 - PAGE_BITS)];
    if (page.key != key) look_up(page, key, address);
    if (page.touched) mark(page.touched, address, bytes, write);
}

std::vector<FakeRange> ranges(uint8_t bit) {
    std::vector<FakeRange> found;
    for (auto &[start, one] : touched)
        for (uint64_t at = 0; at < one.grains.size();) {
            uint64_t from = at;
            while (at < one.grains.size() && one.grains[at] & bit) at++;
            if (at > from) {
                uint64_t bytes = std::min((at - from) * GRAIN, one.end - one.start - from * GRAIN);
                found.push_back({start + from * GRAIN, bytes});
            } else {
                at++;
            }
        }
    return found;
}
} // namespace

void trace_begin() {
    touched.clear();
    launch = (launch + 1) % (1 << LAUNCH_BITS);
    // no number of a launch may stand for an earlier one
    if (launch == 0) std::fill(std::begin(pages), std::end(pages), Page{});
    on = true;
}

void trace_end(std::vector<FakeRange> &reads, std::vector<FakeRange> &writes) {
    on = false;
    reads = ranges(1);
    writes = ranges(2);
}

// The compiler's names for accesses.
#define ACCESS(bytes)                                                                                   \
    EXPORT void __tsan_read##bytes(void *at) { touch(at, bytes, false); }                               \
    EXPORT void __tsan_write##bytes(void *at) { touch(at, bytes, true); }                               \
    EXPORT void __tsan_unaligned_read##bytes(void *at) { touch(at, bytes, false); }                     \
    EXPORT void __tsan_unaligned_write##bytes(void *at) { touch(at, bytes, true); }                     \
    EXPORT void __tsan_volatile_read##bytes(void *at) { touch(at, bytes, false); }                      \
    EXPORT void __tsan_volatile_write##bytes(void *at) { touch(at, bytes, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
EXPORT void __tsan_read_range(void *at, size_t bytes) { touch(at, bytes, false); }
EXPORT void __tsan_write_range(void *at, size_t bytes) { touch(at, bytes, true); }
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void *) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void **, void *) {}
EXPORT void __tsan_vptr_read(void **) {}
// Guards of static variables, which are not device memory.
EXPORT unsigned char __tsan_atomic8_load(const volatile unsigned char *at, int) {
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
