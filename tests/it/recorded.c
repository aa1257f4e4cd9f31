/* A program for tests of `ladderscope record`: acts as driver, CUPTI, NCCL and a user of NVTX, with known times.
 * Compiled as libcupti.so with -DCUPTI, else as the program, which loads that library.
 *
 *   FAKE_RECORD_SIZE   bytes of a kernel record: 200 (CUDA 11.8) to 248 (13.5)
 *   FAKE_BUSY          another profiler has CUPTI's subscription
 *   FAKE_SECOND        another profiler uses CUPTI's second interface (1), and lets nobody in (2)
 *   FAKE_HANG          the last flush never returns
 *   FAKE_END           exit (default), kill, _exit, close; fork, exec and spawn before CUDA; late-fork after it
 *   FAKE_TIMES         file that gets `name start end` of each kernel, in ns
 *
 * Layouts and numbers are those of NVIDIA's cupti_activity.h, cupti_callbacks.h, nvtxTypes.h and NCCL's profiler_v5.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#ifdef CUPTI
typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*callback_fn)(void *, uint32_t, uint32_t, const void *);
typedef void (*request2_fn)(uint8_t **, size_t *, size_t *, const void *);
typedef void (*complete2_fn)(uint8_t *, size_t, size_t, const void *);
static request_fn request;
static complete_fn complete;
/* of the second interface */
static request2_fn request2;
static complete2_fn complete2;
static callback_fn callback;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t room, used;

static size_t kernel_size(void) { return getenv("FAKE_RECORD_SIZE") ? (size_t)atoi(getenv("FAKE_RECORD_SIZE")) : 216; }
static size_t size_of(uint32_t kind) { return kind == 10 ? kernel_size() : kind == 1 ? 96 : 40; }
uint32_t cuptiGetVersion(uint32_t *version) { return *version = 130000, 0; }
uint32_t cuptiSetThreadIdType(uint32_t type) { return type != 1; }
uint32_t cuptiActivitySetAttribute(uint32_t a, size_t *size, void *value) { return !(a == 5 && *size == 1 && *(uint8_t *)value == 1); }
uint32_t cuptiActivityRegisterCallbacks(request_fn r, complete_fn c) {
    if (getenv("FAKE_SECOND")) return 14;
    return request = r, complete = c, 0;
}
uint32_t cuptiActivityEnable(uint32_t kind) { return kind == 12 || kind == 13 || kind == 51; }
uint32_t cuptiActivityEnableDriverApi(uint32_t id, uint8_t on) { return !(id && on); }
uint32_t cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on) { return !(id && on); }
uint32_t cuptiSubscribe(void **subscriber, callback_fn f, void *user) {
    (void)user;
    if (getenv("FAKE_BUSY")) return 39;
    return callback = f, *subscriber = &callback, 0;
}
struct params { size_t size; const char *name; char *old; size_t old_size; uint8_t allow, padding[7]; };
uint32_t cuptiSubscribe_v2(void **subscriber, callback_fn f, void *user, struct params *p) {
    (void)user;
    if (p->size != 40 || p->allow != 1 || strcmp(p->name, "ladderscope")) return 1;
    const char *set = getenv("FAKE_SECOND");
    if (getenv("FAKE_BUSY") || (set && *set == '2')) {
        snprintf(p->old, p->old_size, "CUPTI for Kineto");
        return 39;
    }
    return callback = f, *subscriber = &callback, 0;
}
uint32_t cuptiActivityRegisterCallbacks_v2(void *s, request2_fn r, complete2_fn c) { return request2 = r, complete2 = c, s != &callback; }
uint32_t cuptiActivityEnable_v2(void *s, uint32_t kind, void *config) { return s != &callback || config || kind == 12 || kind == 13 || kind == 51; }
uint32_t cuptiActivitySetAttribute_v2(void *s, uint32_t a, size_t *size, void *value) {
    return !(s == &callback && ((a == 5 && *size == 1) || (a == 21 && *size == 4)) && *(uint8_t *)value == 1);
}
uint32_t cuptiActivityEnableDriverApi_v2(void *s, uint32_t id, uint8_t on) { return !(s == &callback && id && on); }
uint32_t cuptiActivityEnableRuntimeApi_v2(void *s, uint32_t id, uint8_t on) { return !(s == &callback && id && on); }
uint32_t cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t id) {
    return !(on && subscriber == &callback && domain == 3 && (id == 13 || id == 20));
}
uint32_t cuptiGetGraphNodeId(void *node, uint64_t *id) { return *id = (uint64_t)node, 0; }
uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n) { return (void)context, (void)stream, *n = 0, 0; }
uint32_t cuptiActivityGetNumDroppedRecords_v2(void *s, void *context, uint32_t stream, size_t *n) { return (void)s, cuptiActivityGetNumDroppedRecords(context, stream, n); }
/* calls of the two interfaces cannot be mixed */
static uint32_t step(int is_second, uint8_t *start, size_t valid, uint8_t **record) {
    if (is_second != !!complete2) return 14;
    uint8_t *next = *record ? *record + size_of(*(uint32_t *)*record) : start;
    if (next >= start + valid) return 12;
    return *record = next, 0;
}
uint32_t cuptiActivityGetNextRecord(uint8_t *start, size_t valid, uint8_t **record) { return step(0, start, valid, record); }
uint32_t cuptiActivityGetNextRecord_v2(void *s, uint8_t *start, size_t valid, uint8_t **record) { return (void)s, step(1, start, valid, record); }
uint32_t cuptiActivityFlushAll(uint32_t flag) {
    while (flag && getenv("FAKE_HANG")) sleep(100);
    pthread_mutex_lock(&lock);
    uint8_t *full = buffer;
    size_t valid = used;
    buffer = NULL, used = 0;
    pthread_mutex_unlock(&lock);
    size_t about[4] = {32, 0, 0, 0};
    if (full && complete2) complete2(full, room, valid, about);
    else if (full) complete(NULL, 0, full, room, valid);
    return 0;
}
static uint8_t *record(uint32_t kind) {
    size_t most;
    if (!buffer) {
        size_t about = 8;
        request2 ? request2(&buffer, &room, &most, &about) : request(&buffer, &room, &most);
        for (size_t i = 0; i < 4096; i++)
            if (buffer[i]) abort(); /* said to be zeroed */
    }
    uint8_t *at = buffer + used;
    used += size_of(kind);
    memcpy(at, &kind, 4);
    return at;
}
#define SET(at, type, value) (*(type *)(r + (at)) = (value))
void fake_kernel(const char *name, uint64_t start, uint64_t end, uint32_t stream, uint32_t correlation, uint64_t node) {
    if (!request && !request2) return;
    pthread_mutex_lock(&lock);
    uint8_t *r = record(10);
    SET(16, uint64_t, start), SET(24, uint64_t, end), SET(48, uint32_t, stream), SET(92, uint32_t, correlation);
    SET(104, const char *, name), SET(144, uint64_t, node);
    pthread_mutex_unlock(&lock);
}
void fake_copy(uint64_t start, uint64_t end, uint64_t bytes, uint32_t correlation) {
    if (!request && !request2) return;
    pthread_mutex_lock(&lock);
    uint8_t *r = record(1);
    SET(4, uint8_t, 2), SET(8, uint64_t, bytes), SET(16, uint64_t, start), SET(24, uint64_t, end);
    SET(40, uint32_t, 7), SET(44, uint32_t, correlation);
    pthread_mutex_unlock(&lock);
}
void fake_call(uint32_t id, uint64_t start, uint64_t end, uint32_t correlation) {
    if (!request && !request2) return;
    pthread_mutex_lock(&lock);
    uint8_t *r = record(4);
    SET(4, uint32_t, id), SET(8, uint64_t, start), SET(16, uint64_t, end), SET(24, uint32_t, (uint32_t)getpid());
    SET(28, uint32_t, (uint32_t)gettid()), SET(32, uint32_t, correlation);
    pthread_mutex_unlock(&lock);
}
void fake_node(uint32_t id, uint64_t original, uint64_t node) {
    uint64_t graph[7] = {0, 0, node, original, 0, 0, 0};
    uint64_t data[3] = {0, 0, (uint64_t)graph};
    if (callback) callback(NULL, 3, id, data);
}
#else
static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
enum { RANKS = 2, STEPS = 3 };
#define COMMUNICATOR 0xabcdef0123456789u
typedef void (*function)(void);
static function core[16], domains[16];
static function *core_slots[16], *domain_slots[16];
static int tables(int module, function ***table, unsigned *count) {
    if (module != 1 && module != 5) return 0;
    *table = module == 1 ? core_slots : domain_slots, *count = 16;
    return 1;
}
static struct { size_t size; int (*get)(int, function ***, unsigned *); } callbacks = {16, tables};
static const void *export_table(uint32_t id) { return id == 1 ? &callbacks : NULL; }
static function payloads[8];
static void *symbol(const char *variable, const char *name) {
    const char *path = getenv(variable);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !library) fprintf(stderr, "%s\n", dlerror());
    return library ? dlsym(library, name) : NULL;
}

struct attributes { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, count;
    const void *payload; int32_t message_type, unused; const void *message; };
struct payload { uint64_t schema; size_t size; const void *data; };
static void *domain, *all_reduce, *init_name;

static void push(const char *name) { if (core[9]) ((int (*)(const char *))core[9])(name); }
static void pop(void) { if (core[11]) ((int (*)(void))core[11])(); }
static void nccl_push(void *name, uint64_t bytes) {
    struct { uint64_t communicator, bytes; int op; } message = {COMMUNICATOR, bytes, 0};
    struct payload data = {(1 << 24) + 5, sizeof message, &message};
    struct attributes a = {3, 48, 0, 0, 0, (int32_t)0xDFBD0009, 1, &data, 3, 0, name};
    if (domains[4]) ((int (*)(void *, struct attributes *))domains[4])(domain, &a);
}
static void nccl_pop(void) { if (domains[5]) ((int (*)(void *))domains[5])(domain); }

static FILE *times;
static void (*kernel)(const char *, uint64_t, uint64_t, uint32_t, uint32_t, uint64_t);
static void (*call)(uint32_t, uint64_t, uint64_t, uint32_t);
static void ran(const char *name, uint64_t start, uint64_t end, uint32_t stream, uint32_t correlation, uint64_t node) {
    kernel(name, start, end, stream, correlation, node);
    if (times) fprintf(times, "%s %llu %llu\n", name, (unsigned long long)start, (unsigned long long)end);
}

struct plugin { const char *name; int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
    int (*start)(void *, void **, void *), (*stop)(void *), (*state)(void *, int, void *), (*finalize)(void *); };
/* an all-reduce with 2 channels, told after its launch */
static int enqueued(struct plugin *plugin, void *context, const char *algorithm) {
    uint64_t event[16] = {2, 0, 0, 1, (uint64_t)"AllReduce", 0, 0, 1024, 0, (uint64_t)"ncclBfloat16", 2, (uint64_t)algorithm, (uint64_t)"LL"};
    void *handle = &handle;
    return plugin && (plugin->start(context, &handle, event) || handle);
}

int main(int count, char **arguments) {
    (void)count;
    int rank = getenv("RANK") ? atoi(getenv("RANK")) : 0;
    const char *ending = getenv("FAKE_END") ? getenv("FAKE_END") : "exit";
    times = getenv("FAKE_TIMES") ? fopen(getenv("FAKE_TIMES"), "w") : NULL;
    void *cupti = dlopen(getenv("FAKE_CUPTI"), RTLD_NOW);
    if (!cupti) return fprintf(stderr, "%s\n", dlerror()), 99;
    kernel = dlsym(cupti, "fake_kernel"), call = dlsym(cupti, "fake_call");
    void (*copy)(uint64_t, uint64_t, uint64_t, uint32_t) = dlsym(cupti, "fake_copy");
    void (*node)(uint32_t, uint64_t, uint64_t) = dlsym(cupti, "fake_node");
    for (int i = 0; i < 16; i++) core_slots[i] = &core[i], domain_slots[i] = &domains[i];

    /* NVTX comes first, in a process that may still fork */
    int (*nvtx)(const void *(*)(uint32_t)) = symbol("NVTX_INJECTION64_PATH", "InitializeInjectionNvtx2");
    int (*extension)(void *) = symbol("NVTX_INJECTION64_PATH", "InitializeInjectionNvtxExtension");
    /* as NVTX: a library that refuses leaves the calls without effect */
    if (nvtx && !nvtx(export_table)) nvtx = NULL, extension = NULL;
    struct { size_t id, count; function *slots; } segment = {0, 8, payloads};
    struct { uint16_t version, size, module, compatible; size_t segments; void *first; } module = {3, 32, 2, 0, 1, &segment};
    if (extension && !extension(&module)) return 97;
    if (nvtx) {
        domain = ((void *(*)(const char *))domains[12])("NCCL");
        all_reduce = ((void *(*)(void *, const char *))domains[10])(domain, "ncclAllReduce");
        init_name = ((void *(*)(void *, const char *))domains[10])(domain, "ncclCommInitRank");
    }
    if (!strcmp(ending, "exec") || !strcmp(ending, "spawn")) {
        push("before");
        pop();
        setenv("FAKE_END", "exit", 1);
        char *again[] = {arguments[0], NULL};
        if (!strcmp(ending, "exec")) return execv(again[0], again), 98;
        pid_t child;
        int status;
        if (posix_spawn(&child, again[0], NULL, NULL, again, environ)) return 98;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    if (!strcmp(ending, "fork")) {
        push("before the fork");
        pid_t child = fork();
        if (child) {
            int status;
            pop();
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }
    }
    int (*driver)(void) = symbol("CUDA_INJECTION64_PATH", "InitializeInjection");
    if (driver && !driver()) return 96;

    /* the communicator, told by the plugin and at the end of NVTX's range */
    struct plugin *plugin = symbol("NCCL_PROFILER_PLUGIN", "ncclProfiler_v5");
    void *context = NULL;
    int mask = 0;
    if (plugin) {
        if (plugin->init(&context, COMMUNICATOR, &mask, "tp", 1, RANKS, rank, NULL)) return 95;
        if (mask && (!(mask & 2) || mask & (1 << 6))) return 94;
        if (enqueued(plugin, context, "RING")) return 93;
    }
    if (nvtx) {
        nccl_push(init_name, 0);
        struct { uint64_t communicator; int ranks, rank, device; } made = {COMMUNICATOR, RANKS, rank, 0};
        struct payload data = {1 << 24, sizeof made, &made};
        ((int (*)(void *, struct payload *, size_t))payloads[4])(domain, &data, 1);
    }
    if (!strcmp(ending, "close")) close_range(3, ~0u, 0);

    /* a captured all-reduce of 4096 bytes, and its clone in the executable graph */
    nccl_push(all_reduce, 4096);
    node(13, 0, 500);
    enqueued(plugin, context, "TREE");
    nccl_pop();
    node(13, 0, 501);
    node(20, 500, 600);
    node(20, 501, 601);
    uint32_t correlation = 0;
    for (int step = 0; step < STEPS; step++) {
        char name[32];
        snprintf(name, sizeof name, "decode step %d", step);
        push(name);
        uint64_t t = now();
        call(307, t, t + 100, ++correlation);
        ran("_Z4gemmPfi", t + 1000, t + 3001, 7, correlation, 0);
        nccl_push(all_reduce, 16384);
        usleep(10);
        uint64_t launch = now();
        call(307, launch, launch + 50, ++correlation);
        enqueued(plugin, context, "RING");
        nccl_pop();
        ran("_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LLP11ncclDevComm", launch + 500000, launch + 501007, 13, correlation, 0);
        launch = now();
        call(514, launch, launch + 50, ++correlation);
        ran("_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LLP11ncclDevComm", launch + 600000, launch + 601009, 13, correlation, 600);
        ran("_Z4gemmPfi", launch + 602000, launch + 603001, 7, correlation, 601);
        copy(launch + 700000, launch + 700900, 2048, 0);
        pop();
        usleep(2000);
    }
    if (times) fclose(times);
    if (!strcmp(ending, "late-fork")) {
        pid_t child = fork();
        if (!child) {
            push("in the late child");
            usleep(50000);
            pop();
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) return 92;
    }
    if (!strcmp(ending, "kill")) usleep(400000), raise(SIGKILL);
    if (!strcmp(ending, "_exit")) usleep(400000), _exit(5);
    return 7;
}
#endif
