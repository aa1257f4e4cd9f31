// What NCCL tells profilers of its collectives: its profiler plugin (NCCL_PROFILER_PLUGIN, v1 of 2.23 to v6 of 2.29) and
// its NVTX ranges with payloads (NVTX_INJECTION64_PATH). Layouts are those of NCCL's profiler_v1.h to profiler_v6.h and
// nvtx_payload_schemas.h, and of NVTX's nvtxTypes.h; the order of events is that of NCCL's enqueue.cc.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

// A call, as a profiler is told.
struct Told {
    const char *function, *datatype;
    uint64_t count, bytes;
    // The number that version 1 has instead of the function's name.
    uint8_t number;
    uint64_t communicator, sequence;
    int rank;
    void *context;
};

class Profilers {
    using Function = void (*)();
    struct Plugin {
        const char *name;
        Function init;
        int (*start)(void *, void **, void *);
        int (*stop)(void *);
        int (*state)(void *, int, void *);
        int (*finalize)(void *);
    };
    struct Payload {
        uint64_t schema;
        size_t size;
        const void *data;
    };
    struct Attributes {
        uint16_t version, size;
        uint32_t category;
        int32_t color_type;
        uint32_t color;
        int32_t payload_type, payload_count;
        const void *payload;
        int32_t message_type, unused;
        const void *message;
    };
    struct ExportTable {
        size_t size;
        int (*get)(int, Function ***, unsigned *);
    };
    static constexpr uint64_t SCHEMAS = 1 << 24;
    enum { PUSH = 4, POP = 5, REGISTER = 10, CREATE = 12, POP_PAYLOAD = 4, SLOTS = 16 };

    int nccl, version = 0;
    Plugin *plugin = nullptr;
    // NCCL's own variable, of which it gives plugins the address.
    int mask = 0;
    static inline Function core[SLOTS], domains[SLOTS], payloads[8];
    static inline Function *core_slots[SLOTS], *domain_slots[SLOTS];
    void *domain = nullptr;

    static int tables(int module, Function ***table, unsigned *count) {
        if (module != 1 && module != 5) return 0;
        *table = module == 1 ? core_slots : domain_slots;
        *count = SLOTS;
        return 1;
    }
    static const void *exported(uint32_t id) {
        static const ExportTable table = {sizeof(ExportTable), tables};
        return id == 1 ? &table : nullptr;
    }
    template <class F> static F as(Function slot) { return reinterpret_cast<F>(slot); }

    int newest() const {
        int minor = nccl / 100 % 100;
        return minor < 24 ? 1 : minor < 26 ? 2 : minor < 29 ? minor - 23 : 6;
    }

    void load_plugin() {
        const char *path = getenv("NCCL_PROFILER_PLUGIN");
        void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
        if (!library) return;
        // the newest that this NCCL knows
        for (int known = newest(); known >= 1 && !plugin; known--) {
            char name[] = "ncclProfiler_v0";
            name[sizeof name - 2] = char('0' + known);
            plugin = static_cast<Plugin *>(dlsym(library, name));
            version = known;
        }
    }

    void load_nvtx() {
        const char *path = getenv("NVTX_INJECTION64_PATH"), *off = getenv("NCCL_NVTX_DISABLE");
        void *library = path && !(off && *off == '1') ? dlopen(path, RTLD_LAZY) : nullptr;
        if (!library) return;
        for (int at = 0; at < SLOTS; at++) core_slots[at] = &core[at], domain_slots[at] = &domains[at];
        auto init = reinterpret_cast<int (*)(const void *(*)(uint32_t))>(dlsym(library, "InitializeInjectionNvtx2"));
        if (!init || !init(exported) || !domains[CREATE]) return;
        struct {
            size_t id, count;
            Function *slots;
        } segment = {0, 8, payloads};
        struct {
            uint16_t version, size, module, compatible;
            size_t segments;
            void *first;
        } module = {3, 32, 2, 0, 1, &segment};
        auto extend = reinterpret_cast<int (*)(void *)>(dlsym(library, "InitializeInjectionNvtxExtension"));
        if (extend) extend(&module);
        domain = as<void *(*)(const char *)>(domains[CREATE])("NCCL");
    }

    void push(const char *name, const Payload *payload) {
        if (!domain) return;
        auto *text = as<void *(*)(void *, const char *)>(domains[REGISTER])(domain, name);
        Attributes attributes = {3, 48, 0, 0, 0, payload ? int32_t(0xDFBD0009) : 0, payload ? 1 : 0, payload, 3, 0, text};
        as<int (*)(void *, const Attributes *)>(domains[PUSH])(domain, &attributes);
    }

    // Starts an event and stops it at once: NCCL tells of what was enqueued, not of what is done.
    void tell(const Told &told, void *event) {
        void *handle = nullptr;
        plugin->start(told.context, &handle, event);
        if (handle) plugin->stop(handle);
    }

  public:
    explicit Profilers(int nccl) : nccl(nccl) {
        load_plugin();
        load_nvtx();
    }

    // A communicator was initialised on this thread; gives the plugin's context.
    void *joined(uint64_t communicator, int ranks, int rank, int device) {
        void *context = nullptr;
        if (plugin && version <= 3) {
            reinterpret_cast<int (*)(void **, int *)>(plugin->init)(&context, &mask);
        } else if (plugin && version == 4) {
            auto init = reinterpret_cast<int (*)(void **, int *, const char *, uint64_t, int, int, int, void *)>(plugin->init);
            init(&context, &mask, "tp", communicator, 1, ranks, rank, nullptr);
        } else if (plugin) {
            auto init = reinterpret_cast<int (*)(void **, uint64_t, int *, const char *, int, int, int, void *)>(plugin->init);
            init(&context, communicator, &mask, "tp", 1, ranks, rank, nullptr);
        }
        if (domain && nccl >= 22500) {
            push("ncclCommInitRankConfig", nullptr);
            struct {
                uint64_t communicator;
                int ranks, rank, device;
            } made = {communicator, ranks, rank, device};
            Payload payload = {SCHEMAS + 11, sizeof made, &made};
            if (payloads[POP_PAYLOAD]) as<int (*)(void *, const Payload *, size_t)>(payloads[POP_PAYLOAD])(domain, &payload, 1);
        }
        return context;
    }

    // A call begins.
    void calls(const Told &told) {
        if (domain) {
            struct {
                uint64_t first, second;
                int operation;
            } message = {told.communicator, told.bytes, 0};
            if (nccl < 22500) message = {told.bytes, 0, 0};
            uint64_t schema = SCHEMAS + (told.number == 4 ? 5 : told.number == 3 ? 7 : 4);
            Payload payload = {schema, nccl < 22500 ? 12 : sizeof message, &message};
            char name[40] = "nccl";
            strcat(name, told.function);
            push(name, &payload);
        }
        if (plugin && version >= 5 && mask & 1 << 9) {
            uint64_t event[16] = {1 << 9, 0, uint64_t(told.rank), uint64_t(told.function), told.count, uint64_t(told.datatype)};
            tell(told, event);
        }
    }

    // The call's kernel was launched or captured, and the call returns.
    void launched(const Told &told) {
        if (plugin && mask & 1 << 1) {
            // of AllGather the count is in bytes here
            bool gathers = told.number == 2;
            uint64_t count = gathers ? told.bytes : told.count;
            auto datatype = uint64_t(gathers ? "ncclInt8" : told.datatype);
            uint64_t event[16] = {1 << 1, 0, uint64_t(told.rank)};
            auto *bytes = reinterpret_cast<uint8_t *>(event);
            auto algorithm = uint64_t("RING"), protocol = uint64_t("LL"), function = uint64_t(told.function);
            if (version == 1) {
                event[4] = told.communicator, event[5] = told.sequence, event[9] = count;
                bytes[48] = told.number, bytes[84] = gathers ? 0 : 7, bytes[104] = 2;
                bytes[106] = 1, bytes[107] = 0; // RING, LL
            } else if (version <= 3) {
                event[4] = told.communicator, event[5] = told.sequence, event[6] = function;
                event[9] = count, event[11] = datatype;
                int at = version == 2 ? 13 : 12;
                bytes[8 * at] = 2, event[at + 1] = algorithm, event[at + 2] = protocol;
                if (version == 2) event[12] = told.bytes;
            } else {
                event[3] = told.sequence, event[4] = function, event[7] = count, event[9] = datatype;
                bytes[80] = 2, bytes[81] = 16, event[11] = algorithm, event[12] = protocol;
            }
            tell(told, event);
        }
        if (domain) as<int (*)(void *)>(domains[POP])(domain);
    }

    void left(void *context) {
        if (plugin) plugin->finalize(context);
    }
};
