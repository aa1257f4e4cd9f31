// Copies from global into shared memory that go on beside their thread (cp.async): as late as they may, in the
// wait for them, so that a wait too few is seen; or, in odd orders of threads, at once, so that a copy into what is
// still being read is.
#pragma once

#include "fibers.h"

namespace shim {

struct Copy {
    void* to;
    const void* from; // null: zeros
    unsigned group;
};
constexpr unsigned MAX_COPIES = 128;
constexpr unsigned COPY_BYTES = 16;

// What a thread has under way, apart from the copies themselves: every thread of every block begins with it.
struct Copies {
    unsigned count, groups;
};
inline Copies copies[MAX_THREADS];
inline Copy copies_under_way[MAX_THREADS][MAX_COPIES];

inline void copy_now(const Copy& copy) {
    if (copy.from) {
        memcpy(copy.to, copy.from, COPY_BYTES);
    } else {
        memset(copy.to, 0, COPY_BYTES);
    }
}

// 16 bytes, or zeros where not `valid`.
inline void copy_async(void* to, const void* from, bool valid) {
    Copies& own = copies[current->linear];
    if (reinterpret_cast<uintptr_t>(to) % COPY_BYTES || reinterpret_cast<uintptr_t>(from) % COPY_BYTES) {
        fail("a copy from %p to %p is not aligned to %u bytes", from, to, COPY_BYTES);
    }
    Copy copy{to, valid ? from : nullptr, own.groups};
    if (order_seed % 2 == 1) return copy_now(copy);
    if (own.count == MAX_COPIES) fail("more than %u copies wait", MAX_COPIES);
    copies_under_way[current->linear][own.count++] = copy;
}

inline void commit_copies() { copies[current->linear].groups++; }

// Until at most `latest` of the thread's groups are under way.
inline void wait_for_copies(unsigned latest) {
    Copies& own = copies[current->linear];
    Copy* waiting = copies_under_way[current->linear];
    unsigned kept = 0;
    for (unsigned i = 0; i < own.count; i++) {
        Copy copy = waiting[i];
        if (copy.group + latest < own.groups) {
            copy_now(copy);
        } else {
            waiting[kept++] = copy;
        }
    }
    own.count = kept;
}

inline void begin_copies() { copies[current->linear] = {0, 0}; }

// A thread that leaves gives its block's shared memory back: nothing may be on its way there.
inline void end_copies() {
    if (copies[current->linear].count > 0) fail("leaves with %u copies under way", copies[current->linear].count);
}

} // namespace shim
