/* An NVTX injection library that logs the ranges of NCCL to the file named by LADDERSCOPE_NVTX_LOG, a line each:
 * `<thread> push <domain> <name> [schema <id> communicator <hex> bytes <n>]`, `<thread> pop`. For shared_ranks.sh:
 *     gcc -O2 -shared -fPIC -o nvtx_nccl.so nvtx_nccl.c
 * Tables, callback numbers and attributes are those of NVIDIA's nvtxTypes.h (NVTX v3). */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*function)(void);
typedef struct {
    size_t struct_size;
    int (*get_module_function_table)(int module, function ***table, unsigned int *size);
} callbacks;
typedef const void *(*get_export_table)(uint32_t id);

/* nvtxEventAttributes_t */
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, payloads;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} attributes;
/* nvtxPayloadData_t */
typedef struct {
    uint64_t schema;
    size_t size;
    const void *data;
} payload;

enum { EXPORT_CALLBACKS = 1, MODULE_CORE2 = 5, RANGE_PUSH_EX = 4, RANGE_POP = 5, REGISTER_STRING_A = 10, DOMAIN_CREATE_A = 12 };
enum { ASCII = 1, REGISTERED = 3, EXTENDED_PAYLOAD = (int32_t)0xDFBD0009 };

static FILE *out;

static long thread(void) { return syscall(SYS_gettid); }

/* Handles of domains and of registered strings are their names. */
static void *create_domain(const char *name) { return strdup(name); }
static void *register_string(void *domain, const char *text) {
    (void)domain;
    return strdup(text);
}

static int push(void *domain, const attributes *given) {
    int named = given->message_type == ASCII || given->message_type == REGISTERED;
    const char *name = named && given->message ? given->message : "?";
    const payload *one = (const payload *)given->payload;
    if (given->payload_type == EXTENDED_PAYLOAD && given->payloads > 0 && one && one->data && one->size >= 16) {
        uint64_t numbers[2];
        memcpy(numbers, one->data, sizeof numbers);
        fprintf(out, "%ld push %s %s schema %llu communicator %llx bytes %llu\n", thread(), domain ? (char *)domain : "-", name,
                (unsigned long long)one->schema, (unsigned long long)numbers[0], (unsigned long long)numbers[1]);
    } else {
        fprintf(out, "%ld push %s %s\n", thread(), domain ? (char *)domain : "-", name);
    }
    return 0;
}

static int pop(void *domain) {
    (void)domain;
    fprintf(out, "%ld pop\n", thread());
    return 0;
}

int InitializeInjectionNvtx2(get_export_table export_table) {
    const char *path = getenv("LADDERSCOPE_NVTX_LOG");
    if (!out) out = path ? fopen(path, "a") : NULL;
    const callbacks *calls = export_table(EXPORT_CALLBACKS);
    function **table;
    unsigned int size;
    if (!out || !calls || !calls->get_module_function_table(MODULE_CORE2, &table, &size) || size <= DOMAIN_CREATE_A) return 0;
    setvbuf(out, NULL, _IOLBF, 0);
    *table[RANGE_PUSH_EX] = (function)push;
    *table[RANGE_POP] = (function)pop;
    *table[REGISTER_STRING_A] = (function)register_string;
    *table[DOMAIN_CREATE_A] = (function)create_domain;
    return 1;
}
