// Modules, functions and launches. A module's image is a shared object that the software NVRTC made of a
// kernel's source.
#include "state.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

// The length of an ELF file, which ends with its section table; 0 where that is no such file.
static uint64_t image_bytes(const void *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, SELFMAG);
    if (memcmp(&header, ELFMAG, SELFMAG) != 0) return 0;
    memcpy(&header, image, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) return 0;
    return header.e_shoff + uint64_t(header.e_shnum) * header.e_shentsize;
}

static bool for_this_machine(const void *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return header.e_machine == EM_X86_64 || header.e_machine == EM_AARCH64;
}

Module::~Module() {
    if (library) dlclose(library);
    if (file >= 0) close(file);
}

static CUresult load(CUmodule *out, const void *image, Call &call) {
    if (!out || !image) return call.answer(INVALID_VALUE);
    if (CUresult refusal = call.unsafe_in_capture()) return call.answer(refusal);
    uint64_t bytes = image_bytes(image);
    if (bytes == 0) return call.answer(INVALID_IMAGE);
    if (!for_this_machine(image)) return call.answer(NO_BINARY_FOR_GPU);
    int file = memfd_create("module", MFD_CLOEXEC);
    auto module = std::make_shared<Module>();
    module->file = file;
    if (file < 0 || write(file, image, bytes) != ssize_t(bytes)) return call.answer(OUT_OF_MEMORY);
    // The file stays open: the loader takes two of the same name for one.
    std::string path = "/proc/self/fd/" + std::to_string(file);
    module->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module->library) {
        fprintf(stderr, "software CUDA device: %s\n", dlerror());
        return call.answer(INVALID_IMAGE);
    }
    auto find = [&](auto &function, const char *name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(module->library, name));
        return function != nullptr;
    };
    if (!find(module->set_clock, "shim_clock") || !find(module->set_order, "shim_order") ||
        !find(module->error, "shim_error") || !find(module->ended_blocks, "shim_ended_blocks"))
        return call.answer(INVALID_IMAGE);
    module->stamped = dlsym(module->library, "shim_stamped") != nullptr;
    auto *sm = static_cast<const int *>(dlsym(module->library, "shim_sm"));
    if (sm && uint64_t(*sm) != setting("FAKE_CUDA_SM", 90)) return call.answer(NO_BINARY_FOR_GPU);
    module->id = state().next_id++;
    module->device = call.device();
    *out = state().modules.add(module->id, module);
    return SUCCESS;
}
EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    ENTER(cuModuleLoadData, Context);
    return load(out, image, call);
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned, void *, void **) {
    ENTER(cuModuleLoadDataEx, Context);
    return load(out, image, call);
}

EXPORT CUresult cuModuleUnload(CUmodule handle) {
    ENTER(cuModuleUnload, Context);
    REFUSE_IN_CAPTURE();
    auto module = state().modules.get(handle);
    if (!module) return call.answer(INVALID_HANDLE);
    Device *device = module->device;
    CUresult code = run_until(call, *device, [=] { return device->pending == 0; });
    if (code) return call.answer(code);
    std::vector<void *> gone;
    for (auto &[function, object] : state().functions.all())
        if (object->module == module) gone.push_back(function);
    for (void *function : gone) state().functions.remove(function);
    state().modules.remove(handle);
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    ENTER(cuModuleGetFunction, Context);
    auto module = state().modules.get(handle);
    if (!module || !out || !name) return call.answer(INVALID_HANDLE);
    std::string symbol = std::string("shim_") + name;
    auto function = std::make_shared<Function>();
    function->name = name;
    function->module = module;
    function->call = reinterpret_cast<decltype(function->call)>(dlsym(module->library, symbol.c_str()));
    function->sizes = static_cast<const unsigned *>(dlsym(module->library, (symbol + "_args").c_str()));
    if (!function->call || !function->sizes) return call.answer(NOT_FOUND);
    *out = state().functions.add(state().next_id++, function);
    return SUCCESS;
}

static constexpr int OPT_IN_SHARED = 232448, PER_MULTIPROCESSOR_SHARED = 233472;
enum { MAX_DYNAMIC_SHARED = 8, PREFERRED_CARVEOUT = 9 };

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
    ENTER(cuFuncSetAttribute, Context);
    auto function = state().functions.get(handle);
    if (!function) return call.answer(INVALID_HANDLE);
    if (attribute == PREFERRED_CARVEOUT) return SUCCESS;
    if (attribute != MAX_DYNAMIC_SHARED || value < 0 || value > OPT_IN_SHARED)
        return call.answer(INVALID_VALUE);
    function->dynamic_shared = unsigned(value);
    return SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle) {
    ENTER(cuFuncGetAttribute, Context);
    auto function = state().functions.get(handle);
    if (!function || !value) return call.answer(INVALID_HANDLE);
    // threads a block, static shared, constants, local, registers, PTX and binary version
    static const int fixed[] = {1024, 0, 0, 0, 32, 90, 90, 0};
    if (attribute == MAX_DYNAMIC_SHARED) *value = int(function->dynamic_shared);
    else if (attribute >= 0 && attribute < 8) *value = fixed[attribute];
    else return call.answer(INVALID_VALUE);
    return SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads,
                                                            size_t shared) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor, Context);
    auto function = state().functions.get(handle);
    if (!function || !blocks) return call.answer(INVALID_HANDLE);
    if (threads < 1 || threads > 1024) return call.answer(INVALID_VALUE);
    int by_threads = 2048 / ((threads + 31) / 32 * 32);
    // A block takes 1 KiB besides what it asks for.
    int by_shared = shared > function->dynamic_shared ? 0 : PER_MULTIPROCESSOR_SHARED / int(shared + 1024);
    *blocks = std::min({by_threads, by_shared, 32});
    return SUCCESS;
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared,
                       CUstream stream_handle, void **arguments, void **extra, bool programmatic, Call &call) {
    auto function = state().functions.get(handle);
    auto stream = stream_of(call, stream_handle);
    if (!function || !stream) return call.answer(INVALID_HANDLE);
    if (stream->device != function->module->device) return call.answer(INVALID_HANDLE);
    uint64_t threads = 1;
    const unsigned most_block[3] = {1024, 1024, 64}, most_grid[3] = {2147483647, 65535, 65535};
    for (int i = 0; i < 3; i++) {
        threads *= block[i];
        if (!block[i] || !grid[i] || block[i] > most_block[i] || grid[i] > most_grid[i])
            return call.answer(INVALID_VALUE);
    }
    if (threads > 1024 || shared > function->dynamic_shared) return call.answer(INVALID_VALUE);
    unsigned count = function->sizes[0];
    if (extra || (count && !arguments)) return call.answer(INVALID_VALUE);
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Kernel;
    op->name = function->name;
    op->function = function;
    op->programmatic = programmatic;
    op->multiprocessors = stream->multiprocessors;
    memcpy(op->grid, grid, sizeof op->grid);
    memcpy(op->block, block, sizeof op->block);
    op->shared = shared;
    for (unsigned i = 0; i < count; i++) {
        auto *from = static_cast<const uint8_t *>(arguments[i]);
        op->arguments.emplace_back(from, from + function->sizes[1 + i]);
    }
    return call.answer(enqueue(*stream, op));
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, CUstream stream, void **arguments,
                               void **extra) {
    ENTER(cuLaunchKernel, Context);
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(function, grid, block, shared, stream, arguments, extra, false, call);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                                 void **extra) {
    ENTER(cuLaunchKernelEx, Context);
    if (!config || (config->count && !config->attributes)) return call.answer(INVALID_VALUE);
    bool programmatic = false;
    for (unsigned i = 0; i < config->count; i++) {
        unsigned id = config->attributes[i].id;
        // Programmatic launches need compute capability 9.0; other attributes are not offered.
        if (id != 0 && id != ATTRIBUTE_PROGRAMMATIC) return call.answer(NOT_SUPPORTED);
        if (id == ATTRIBUTE_PROGRAMMATIC && setting("FAKE_CUDA_SM", 90) < 90)
            return call.answer(NOT_SUPPORTED);
        programmatic |= id == ATTRIBUTE_PROGRAMMATIC && config->attributes[i].value.programmatic;
    }
    return launch(function, config->grid, config->block, config->shared, config->stream, arguments, extra,
                  programmatic, call);
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *user) {
    ENTER(cuLaunchHostFunc, Context);
    auto stream = stream_of(call, handle);
    if (!stream || !function) return call.answer(INVALID_HANDLE);
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Host;
    op->name = "host";
    op->host = function;
    op->user = user;
    return call.answer(enqueue(*stream, op));
}

extern "C" __attribute__((visibility("default"))) int fakeCudaEnqueue(void *handle, const FakeWork *work) {
    Call call("fakeCudaEnqueue", Call::Context);
    auto owned = std::shared_ptr<FakeWork>(new FakeWork(*work), [](FakeWork *gone) {
        gone->release(gone->user);
        delete gone;
    });
    if (call.refused()) return call.refused();
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Library;
    op->name = work->name;
    op->work = owned;
    op->reads.assign(work->reads, work->reads + work->read_count);
    op->writes.assign(work->writes, work->writes + work->write_count);
    return call.answer(enqueue(*stream, op));
}
