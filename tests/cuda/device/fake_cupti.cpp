// CUPTI of the software device: grants everything. With FAKE_CUPTI_RECORDS=1 it fills buffers with the activity of the
// device, else it records nothing, which shows what becomes of an empty recording.
//   FAKE_CUPTI_VERSION   130000; sizes of records follow: 18 is CUDA 11.8, 28 is 12.9, 130400 is 13.4
// Times are the device's virtual clock plus the wall clock at the first use of CUPTI, or the base of fake_clock.cpp. Layouts are those of NVIDIA's
// cupti_activity.h.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>

#include <dlfcn.h>

#include "driver/hook.h"

#define CUPTI extern "C" __attribute__((visibility("default"))) uint32_t

namespace {
enum : uint32_t { COPY = 1, FILL = 2, DRIVER = 4, KERNEL = 10 };
using Request = void (*)(uint8_t **, size_t *, size_t *);
using Complete = void (*)(void *, uint32_t, uint8_t *, size_t, size_t);
using Callback = void (*)(void *, uint32_t, uint32_t, const void *);

std::mutex lock;
Request request;
Complete complete;
Callback callback;
std::set<uint32_t> enabled;
uint8_t *buffer;
size_t room, used;

uint32_t version() {
    const char *set = getenv("FAKE_CUPTI_VERSION");
    return set ? uint32_t(strtoul(set, nullptr, 10)) : 130000;
}

size_t size_of(uint32_t kind) {
    uint32_t v = version();
    switch (kind) {
    case KERNEL: return v >= 130400 ? 248 : v >= 130300 ? 232 : v >= 130100 ? 224 : v >= 130000 ? 216 : v > 18 ? 208 : 200;
    case COPY: return v >= 130400 ? 112 : v >= 26 ? 96 : 88;
    case FILL: return v >= 130400 ? 104 : 88;
    default: return 40;
    }
}

uint64_t wall() {
    timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

// From the virtual clock to the wall clock.
uint64_t offset() {
    static const uint64_t value = [] {
        auto base = reinterpret_cast<uint64_t (*)()>(dlsym(RTLD_DEFAULT, "fakeClockBase"));
        return base ? base() : wall();
    }();
    return value;
}

struct Record {
    uint8_t *at;
    template <class T> Record &set(size_t offset, T value) {
        memcpy(at + offset, &value, sizeof value);
        return *this;
    }
};

// A record of this kind, with the lock held; null where nobody wants it.
Record add(uint32_t kind) {
    size_t size = size_of(kind);
    if (buffer && used + size > room) {
        complete(nullptr, 0, buffer, room, used);
        buffer = nullptr;
    }
    if (!buffer) {
        size_t most = 0;
        request(&buffer, &room, &most);
        if (!buffer && version() < 27) abort(); // as CUPTI before 12.9
        if (!buffer) return {nullptr};
        used = 0;
    }
    Record record{buffer + used};
    memset(record.at, 0, size);
    used += size;
    return record.set(0, kind);
}

void ran(int kind, const char *name, uint64_t start, uint64_t end, uint32_t device, uint32_t stream,
         uint32_t correlation, uint64_t node, uint64_t bytes) {
    std::lock_guard<std::mutex> held(lock);
    uint32_t activity = kind == 0 ? KERNEL : kind == 1 ? COPY : FILL;
    if (!request || !enabled.count(activity)) return;
    // never destroyed: the last flush may come after static destructors
    static auto &names = *new std::set<std::string>;
    Record record = add(activity);
    if (!record.at) return;
    record.set(16, start + offset()).set(24, end + offset());
    if (activity == KERNEL) {
        record.set(40, device).set(44, device + 1).set(48, stream).set(92, correlation);
        record.set(104, names.insert(name).first->c_str()).set(144, node);
        return;
    }
    record.set(8, bytes).set(32, device).set(40, stream).set(44, correlation).set(64, node);
    if (activity == COPY) record.set(4, uint8_t(8));
}

void called(const char *function, uint64_t start, uint64_t end, uint32_t correlation) {
    static const struct {
        const char *name;
        uint32_t id;
    } calls[] = {{"cuLaunchKernel", 307}, {"cuLaunchKernelEx", 652}, {"cuGraphLaunch", 514}, {"fakeCudaEnqueue", 307}};
    for (auto &call : calls) {
        if (strcmp(call.name, function)) continue;
        std::lock_guard<std::mutex> held(lock);
        if (!request) return;
        Record record = add(DRIVER);
        if (!record.at) return;
        record.set(4, call.id).set(8, start + offset()).set(16, end + offset()).set(24, uint32_t(getpid()));
        record.set(28, uint32_t(gettid())).set(32, correlation);
    }
}

void node(uint64_t original, uint64_t made) {
    if (!callback) return;
    uint64_t graph[7] = {0, 0, made, original, 0, 0, 0};
    const void *data[3] = {nullptr, nullptr, graph};
    callback(nullptr, 3, original ? 20 : 13, data);
}

void observe() {
    static const FakeObserver observer = {ran, called, node};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = driver ? dlsym(driver, "fakeCudaObserve") : nullptr;
    const char *wanted = getenv("FAKE_CUPTI_RECORDS");
    if (function && wanted && !strcmp(wanted, "1"))
        reinterpret_cast<void (*)(const FakeObserver *)>(function)(&observer);
}
} // namespace

CUPTI cuptiGetVersion(uint32_t *out) {
    *out = version();
    return 0;
}
CUPTI cuptiGetResultString(uint32_t, const char **text) {
    *text = "no profiler";
    return 0;
}
CUPTI cuptiGetTimestamp(uint64_t *now) {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    *now = uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
    return 0;
}
CUPTI cuptiSetThreadIdType(uint32_t) { return 0; }
CUPTI cuptiActivitySetAttribute(uint32_t, size_t *, void *) { return 0; }
CUPTI cuptiSubscribe(void **subscriber, Callback function, void *) {
    callback = function;
    *subscriber = &callback;
    return 0;
}
CUPTI cuptiUnsubscribe(void *) {
    callback = nullptr;
    return 0;
}
CUPTI cuptiEnableCallback(uint32_t, void *, uint32_t, uint32_t) { return 0; }
CUPTI cuptiGetGraphNodeId(void *node, uint64_t *id) {
    *id = reinterpret_cast<uint64_t>(node);
    return 0;
}
CUPTI cuptiActivityRegisterCallbacks(Request r, Complete c) {
    std::lock_guard<std::mutex> held(lock);
    request = r;
    complete = c;
    observe();
    return 0;
}
CUPTI cuptiActivityEnable(uint32_t kind) {
    std::lock_guard<std::mutex> held(lock);
    enabled.insert(kind);
    return 0;
}
CUPTI cuptiActivityDisable(uint32_t kind) {
    std::lock_guard<std::mutex> held(lock);
    enabled.erase(kind);
    return 0;
}
CUPTI cuptiActivityFlushAll(uint32_t) {
    std::unique_lock<std::mutex> held(lock);
    uint8_t *full = buffer;
    size_t valid = used;
    buffer = nullptr;
    held.unlock();
    if (full) complete(nullptr, 0, full, room, valid);
    return 0;
}
CUPTI cuptiActivityGetNextRecord(uint8_t *start, size_t valid, uint8_t **record) {
    uint8_t *next = start;
    if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, sizeof kind);
        next = *record + size_of(kind);
    }
    if (next >= start + valid) return 12;
    *record = next;
    return 0;
}
CUPTI cuptiActivityGetNumDroppedRecords(void *, uint32_t, size_t *dropped) {
    *dropped = 0;
    return 0;
}
CUPTI cuptiActivityPushExternalCorrelationId(uint32_t, uint64_t) { return 0; }
CUPTI cuptiActivityPopExternalCorrelationId(uint32_t, uint64_t *last) {
    *last = 0;
    return 0;
}
