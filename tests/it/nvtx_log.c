/* An NVTX injection library for tests: logs every range push, pop and thread name to the file named
 * by LADDERSCOPE_NVTX_LOG, one line each: `<thread> push <name>`, `<thread> pop`, `<thread> start <id> <name>`,
 * `<thread> end <id>`, `<thread> name <name>`.
 * Table and callback numbers are those of NVIDIA's nvtxTypes.h (NVTX v3). */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*function)(void);
typedef struct {
    size_t struct_size;
    int (*get_module_function_table)(int module, function ***table, unsigned int *size);
} callbacks;
typedef const void *(*get_export_table)(uint32_t id);

enum { EXPORT_CALLBACKS = 1, MODULE_CORE = 1, RANGE_START_A = 5, RANGE_END = 7, RANGE_PUSH_A = 9, RANGE_POP = 11, NAME_OS_THREAD_A = 14 };

static FILE *out;

static long thread(void) { return syscall(SYS_gettid); }

static int push(const char *name) {
    fprintf(out, "%ld push %s\n", thread(), name);
    return 0;
}

static uint64_t start(const char *name) {
    static uint64_t last;
    uint64_t id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    fprintf(out, "%ld start %llu %s\n", thread(), (unsigned long long)id, name);
    return id;
}

static void end(uint64_t id) { fprintf(out, "%ld end %llu\n", thread(), (unsigned long long)id); }

static int pop(void) {
    fprintf(out, "%ld pop\n", thread());
    return 0;
}

static void name_thread(uint32_t id, const char *name) {
    (void)id;
    fprintf(out, "%ld name %s\n", thread(), name);
}

int InitializeInjectionNvtx2(get_export_table export_table) {
    const char *path = getenv("LADDERSCOPE_NVTX_LOG");
    out = path ? fopen(path, "a") : NULL;
    const callbacks *calls = export_table(EXPORT_CALLBACKS);
    function **table;
    unsigned int size;
    if (!out || !calls || !calls->get_module_function_table(MODULE_CORE, &table, &size)) return 0;
    setvbuf(out, NULL, _IOLBF, 0);
    *table[RANGE_PUSH_A] = (function)push;
    *table[RANGE_START_A] = (function)start;
    *table[RANGE_END] = (function)end;
    *table[RANGE_POP] = (function)pop;
    *table[NAME_OS_THREAD_A] = (function)name_thread;
    return 1;
}
