// How the other software libraries (cuBLASLt, NCCL) put work on a stream of the software device: it
// is captured, ordered, timed and logged as kernels are.
#pragma once
#include <cstddef>
#include <cstdint>

struct FakeRange {
    uint64_t address;
    uint64_t bytes;
};

struct FakeWork {
    // Name in the log.
    const char *name;
    // An execution starts, at `now` ns of the device's clock; gives what `poll` is asked with.
    void *(*start)(void *user, uint64_t now);
    // Whether the execution is over; if so it sets when it ended. Called until it says yes (then it
    // has freed `execution`), any number of times. A negative answer breaks the context with that code.
    int (*poll)(void *execution, uint64_t *end);
    // The work will not be started again.
    void (*release)(void *user);
    void *user;
    // What it reads and writes, for the log; copied.
    const FakeRange *reads;
    size_t read_count;
    const FakeRange *writes;
    size_t write_count;
};

// What a profiler is told. Device times are ns of the virtual clock; `correlation` numbers the call that enqueued the work.
struct FakeObserver {
    // A kernel (0), copy (1) or fill (2) that ran; `node` is that of the executable graph, 0 outside graphs.
    void (*ran)(int kind, const char *name, uint64_t start, uint64_t end, uint32_t device, uint32_t stream,
                uint32_t correlation, uint64_t node, uint64_t bytes);
    // A call returned on this thread.
    void (*called)(const char *function, uint64_t start, uint64_t end, uint32_t correlation);
    // A node was captured (`original` 0) or cloned into an executable graph.
    void (*node)(uint64_t original, uint64_t node);
};
// Kept for the life of the process.
extern "C" void fakeCudaObserve(const FakeObserver *observer);
// The virtual clock of this thread; takes no lock.
extern "C" uint64_t fakeCudaClock();

// As a kernel launch; 0 or a driver error. On an error the work is released.
extern "C" int fakeCudaEnqueue(void *stream, const FakeWork *work);
// The device that is current on this thread, -1 without one.
extern "C" int fakeCudaDevice();
// Whether `bytes` at `address` lie in one allocation of a device.
extern "C" int fakeCudaHolds(uint64_t address, uint64_t bytes);
// Takes memory of the current device for the life of the process; 0 or a driver error.
extern "C" int fakeCudaTake(uint64_t bytes);
