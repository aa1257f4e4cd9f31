// Checks of the software device itself, each in a process of its own (`rules NAME`): rules that the real
// driver has, and that tests of the project rely on. Prints nothing and exits with 0 where all hold.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "driver/api.h"

static void *library;
template <class... A> CUresult call(const char *name, A... arguments) {
    auto *function = reinterpret_cast<CUresult (*)(A...)>(dlsym(library, name));
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return function(arguments...);
}
#define EXPECT(code, ...)                                                                               \
    do {                                                                                                \
        int got = call(__VA_ARGS__);                                                                    \
        if (got != (code)) {                                                                            \
            fprintf(stderr, "line %d: %s gives %d, not %d\n", __LINE__, #__VA_ARGS__, got, int(code));  \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)
#define CHECK(what)                                                                                     \
    do {                                                                                                \
        if (!(what)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what);                                  \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)
#define OK(...) EXPECT(SUCCESS, __VA_ARGS__)

static CUstream stream() {
    CUstream made;
    OK("cuStreamCreateWithPriority", &made, unsigned(STREAM_NON_BLOCKING), 0);
    return made;
}
static CUevent event(unsigned flags = 0) {
    CUevent made;
    OK("cuEventCreate", &made, flags);
    return made;
}
static CUdeviceptr memory(size_t bytes) {
    CUdeviceptr made;
    OK("cuMemAlloc_v2", &made, bytes);
    return made;
}
static void fill(CUdeviceptr to, unsigned value, CUstream on) { OK("cuMemsetD32Async", to, value, size_t(1), on); }
static unsigned read(CUdeviceptr from) {
    unsigned value;
    OK("cuMemcpyDtoH_v2", static_cast<void *>(&value), from, size_t(4));
    return value;
}
static void begin(CUstream on) { OK("cuStreamBeginCapture_v2", on, int(CAPTURE_GLOBAL)); }

// Fresh memory is no number; sizes count against the device's memory, and end at their ends.
static void memories() {
    CUdeviceptr a = memory(1000);
    CHECK(a % 16 == 0 && read(a) == 0xffffffff);
    size_t free, total;
    OK("cuMemGetInfo_v2", &free, &total);
    CHECK(total - free == 1024);
    CUdeviceptr none;
    EXPECT(OUT_OF_MEMORY, "cuMemAlloc_v2", &none, total);
    unsigned value = 7;
    EXPECT(INVALID_VALUE, "cuMemcpyHtoD_v2", a + 998, static_cast<const void *>(&value), size_t(4));
    EXPECT(INVALID_VALUE, "cuMemFree_v2", a + 16);
    OK("cuMemFree_v2", a);
    EXPECT(INVALID_VALUE, "cuMemFree_v2", a);
    EXPECT(INVALID_HANDLE, "cuStreamSynchronize", reinterpret_cast<CUstream>(0x1234));
    EXPECT(INVALID_HANDLE, "cuEventSynchronize", stream());
}

// Two streams without an event between them: both orders happen, over seeds. Prints the value.
static void race(bool wait) {
    CUdeviceptr a = memory(4);
    CUstream first = stream(), second = stream();
    CUevent done = event(EVENT_DISABLE_TIMING);
    fill(a, 1, first);
    OK("cuEventRecord", done, first);
    if (wait) OK("cuStreamWaitEvent", second, done, 0u);
    fill(a, 2, second);
    OK("cuCtxSynchronize");
    printf("%u\n", read(a));
}

// A synchronous copy waits for no non-blocking stream: it may come first. Prints what it saw.
static void synchronous() {
    CUdeviceptr a = memory(4);
    CUstream on = stream();
    fill(a, 5, on);
    printf("%u\n", read(a));
    OK("cuStreamSynchronize", on);
    CHECK(read(a) == 5);
}

static CUgraph end(CUstream on, int code = SUCCESS) {
    CUgraph graph = nullptr;
    EXPECT(code, "cuStreamEndCapture", on, &graph);
    CHECK((graph != nullptr) == (code == SUCCESS));
    return graph;
}

static void capture() {
    CUdeviceptr a = memory(8), other;
    CUstream main = stream(), side = stream(), third = stream();
    CUevent fork = event(), join = event(), outside = event(), timed = event();
    OK("cuEventRecord", outside, third);
    // Fork, join, a timed record; nothing runs before the launch.
    begin(main);
    fill(a, 1, main);
    OK("cuEventRecord", fork, main);
    OK("cuStreamWaitEvent", side, fork, 0u);
    fill(a + 4, 2, side);
    OK("cuEventRecordWithFlags", timed, side, unsigned(RECORD_EXTERNAL));
    OK("cuEventRecord", join, side);
    EXPECT(CAPTURED_EVENT, "cuEventQuery", join);
    OK("cuStreamWaitEvent", main, join, 0u);
    CUgraph graph = end(main);
    size_t count = 0;
    OK("cuGraphGetNodes", graph, static_cast<CUgraphNode *>(nullptr), &count);
    CHECK(count == 3);
    CUgraphExec exec;
    OK("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
    OK("cuStreamSynchronize", main);
    CHECK(read(a) == 0xffffffff);
    CUevent start = event();
    OK("cuEventRecord", start, main);
    OK("cuGraphLaunch", exec, main);
    OK("cuStreamSynchronize", main);
    CHECK(read(a) == 1 && read(a + 4) == 2);
    float ms = -1;
    OK("cuEventElapsedTime", &ms, start, timed);
    CHECK(ms > 0.003 && ms < 0.1);
    OK("cuGraphDestroy", graph);
    // What is not joined.
    begin(main);
    OK("cuEventRecord", fork, main);
    OK("cuStreamWaitEvent", side, fork, 0u);
    fill(a, 1, side);
    end(main, CAPTURE_UNJOINED);
    // An event from outside.
    begin(main);
    EXPECT(CAPTURE_ISOLATION, "cuStreamWaitEvent", main, outside, 0u);
    EXPECT(CAPTURE_INVALIDATED, "cuMemsetD32Async", a, 1u, size_t(1), main);
    end(main, CAPTURE_INVALIDATED);
    // Calls that wait or allocate.
    begin(main);
    EXPECT(CAPTURE_UNSUPPORTED, "cuStreamSynchronize", main);
    end(main, CAPTURE_INVALIDATED);
    begin(main);
    EXPECT(CAPTURE_UNSUPPORTED, "cuMemAlloc_v2", &other, size_t(4));
    end(main, CAPTURE_INVALIDATED);
    // Two captures, and an end on the wrong stream.
    begin(main);
    begin(side);
    fill(a, 1, side);
    OK("cuEventRecord", join, side);
    EXPECT(CAPTURE_MERGE, "cuStreamWaitEvent", main, join, 0u);
    end(side, CAPTURE_INVALIDATED);
    end(main, CAPTURE_INVALIDATED);
    begin(main);
    OK("cuEventRecord", fork, main);
    OK("cuStreamWaitEvent", side, fork, 0u);
    end(side, CAPTURE_UNMATCHED);
    end(main, CAPTURE_INVALIDATED);
    EXPECT(INVALID_VALUE, "cuStreamEndCapture", main, &graph);
    EXPECT(INVALID_VALUE, "cuEventRecordWithFlags", timed, main, unsigned(RECORD_EXTERNAL));
}

static void times() {
    CUdeviceptr a = memory(4 << 20);
    CUstream on = stream();
    CUevent from = event(), to = event(), untimed = event(EVENT_DISABLE_TIMING);
    float ms;
    EXPECT(INVALID_HANDLE, "cuEventElapsedTime", &ms, from, to);
    OK("cuEventRecord", from, on);
    OK("cuMemsetD8Async", a, static_cast<unsigned char>(0), size_t(4 << 20), on);
    OK("cuEventRecord", to, on);
    OK("cuEventRecord", untimed, on);
    EXPECT(NOT_READY, "cuEventElapsedTime", &ms, from, to);
    OK("cuEventSynchronize", to);
    OK("cuEventElapsedTime", &ms, from, to);
    CHECK(ms > 0.2 && ms < 0.22);
    EXPECT(INVALID_HANDLE, "cuEventElapsedTime", &ms, from, untimed);
}

// The module that the variable names holds `copy(const unsigned* in, unsigned* out, unsigned n)`.
static std::string image;
static void load(const char *variable) {
    FILE *in = fopen(getenv(variable), "rb");
    CHECK(in);
    image.clear();
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, in)) > 0;) image.append(part, n);
    fclose(in);
}
static CUfunction kernel(CUmodule *module) {
    load("RULES_MODULE");
    OK("cuModuleLoadData", module, static_cast<const void *>(image.data()));
    CUfunction function;
    EXPECT(NOT_FOUND, "cuModuleGetFunction", &function, *module, "nothing");
    OK("cuModuleGetFunction", &function, *module, "copy");
    return function;
}
static CUresult launch(CUfunction function, CUdeviceptr in, CUdeviceptr out, unsigned n, unsigned threads,
                       unsigned shared, CUstream on) {
    void *arguments[] = {&in, &out, &n};
    return call("cuLaunchKernel", function, 1u, 1u, 1u, threads, 1u, 1u, shared, on,
                static_cast<void **>(arguments), static_cast<void **>(nullptr));
}

static void launches() {
    CUmodule module;
    CUfunction function = kernel(&module);
    CUstream on = stream();
    CUdeviceptr in = memory(4096), out = memory(4096);
    std::vector<unsigned> numbers(1024);
    for (unsigned i = 0; i < 1024; i++) numbers[i] = i * i;
    OK("cuMemcpyHtoD_v2", in, static_cast<const void *>(numbers.data()), size_t(4096));
    CHECK(launch(function, in, out, 1024, 1025, 0, on) == INVALID_VALUE);
    CHECK(launch(function, in, out, 1024, 64, 50000, on) == INVALID_VALUE);
    OK("cuFuncSetAttribute", function, 8, 50000);
    CHECK(launch(function, in, out, 1024, 64, 50000, on) == SUCCESS);
    OK("cuStreamSynchronize", on);
    CHECK(read(out + 4 * 1023) == 1023 * 1023);
    // A number too many: behind the end of memory that is a multiple of 16 bytes long.
    CHECK(launch(function, in, out, 1025, 64, 0, on) == SUCCESS);
    EXPECT(ILLEGAL_ADDRESS, "cuStreamSynchronize", on);
    EXPECT(ILLEGAL_ADDRESS, "cuMemFree_v2", in);
}

static void images() {
    CUmodule module;
    EXPECT(INVALID_IMAGE, "cuModuleLoadData", &module, static_cast<const void *>("no image at all, but long enough"));
    kernel(&module);
    OK("cuModuleUnload", module);
    EXPECT(INVALID_HANDLE, "cuModuleUnload", module);
    // Two images are two modules.
    CUmodule other;
    CUfunction function;
    load("RULES_OTHER");
    OK("cuModuleLoadData", &other, static_cast<const void *>(image.data()));
    EXPECT(NOT_FOUND, "cuModuleGetFunction", &function, other, "copy");
    OK("cuModuleGetFunction", &function, other, "other");
    // A cubin is an ELF file for another machine.
    reinterpret_cast<uint16_t *>(&image[0])[9] = 190;
    EXPECT(NO_BINARY_FOR_GPU, "cuModuleLoadData", &module, static_cast<const void *>(image.data()));
}

static void faults() {
    CUdeviceptr a;
    OK("cuMemAlloc_v2", &a, size_t(16));
    EXPECT(OUT_OF_MEMORY, "cuMemAlloc_v2", &a, size_t(16));
    OK("cuMemAlloc_v2", &a, size_t(16));
    CUstream on = stream(), other = stream();
    fill(a, 1, on);
    OK("cuStreamSynchronize", on);
    fill(a, 1, on);
    fill(a, 2, other);
    bool ends[2] = {false, false};
    for (int i = 0; i < 1000; i++) {
        ends[0] = ends[0] || call("cuStreamQuery", on) == SUCCESS;
        ends[1] = ends[1] || call("cuStreamQuery", other) == SUCCESS;
    }
    // FAKE_CUDA_HANG=fill:2: one of the two never ends.
    CHECK(ends[0] != ends[1]);
    // Who waits asks as often as the machine lets it; that takes no time of the device's.
    CUevent before = event(), after = event();
    CUstream waits = ends[0] ? other : on, third = stream();
    OK("cuEventRecord", before, third);
    for (int i = 0; i < 1000; i++) EXPECT(NOT_READY, "cuStreamQuery", waits);
    OK("cuEventRecord", after, third);
    OK("cuEventSynchronize", after);
    float ms = -1;
    OK("cuEventElapsedTime", &ms, before, after);
    CHECK(ms >= 0 && ms < 0.1);
}

int main(int count, char **arguments) {
    std::string what = count > 1 ? arguments[1] : "";
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    CUcontext context;
    EXPECT(NOT_INITIALIZED, "cuCtxSetCurrent", CUcontext(nullptr));
    OK("cuInit", 0u);
    EXPECT(INVALID_CONTEXT, "cuCtxSynchronize");
    OK("cuDevicePrimaryCtxRetain", &context, 0);
    OK("cuCtxSetCurrent", context);
    if (what == "memories") memories();
    else if (what == "race") race(false);
    else if (what == "ordered") race(true);
    else if (what == "synchronous") synchronous();
    else if (what == "capture") capture();
    else if (what == "times") times();
    else if (what == "launches") launches();
    else if (what == "images") images();
    else if (what == "faults") faults();
    else return 2;
    fflush(stdout);
    _exit(0);
}
