// Devices and their primary contexts. Settings: FAKE_CUDA_DEVICES, FAKE_CUDA_MEMORY (bytes of each),
// FAKE_CUDA_SM (90), FAKE_CUDA_MULTIPROCESSORS, FAKE_CUDA_DRIVER_VERSION (13000), FAKE_CUDA_NAME,
// FAKE_CUDA_P2P (0: no device reaches another).
#include "state.h"

#include <cstdlib>
#include <dlfcn.h>
#include <cstring>

static thread_local Device *current = nullptr;
Device *&current_device() { return current; }

static Device *device(CUdevice index) {
    auto &devices = state().devices;
    return index >= 0 && size_t(index) < devices.size() ? devices[index].get() : nullptr;
}

static Device *of_context(CUcontext context) {
    for (auto &device : state().devices)
        if (context && device->context == context && device->retained) return device.get();
    return nullptr;
}

static CUresult initialize(unsigned flags) {
    ENTER(cuInit, Nothing);
    if (flags) return call.answer(INVALID_VALUE);
    State &s = state();
    uint64_t count = setting("FAKE_CUDA_DEVICES", 1);
    if (count == 0) return call.answer(NO_DEVICE);
    if (s.initialized) return SUCCESS;
    s.initialized = true;
    s.random = setting("FAKE_CUDA_SEED", 1) * 0x9e3779b97f4a7c15ull + 0x1234567;
    s.in_order = setting("FAKE_CUDA_SEED", 1) == 0;
    for (uint64_t i = 0; i < count; i++) {
        auto device = std::make_unique<Device>();
        device->index = int(i);
        device->context = reinterpret_cast<void *>(0x0fc0000000000000ull + (i + 1) * 16);
        device->null_stream = std::make_shared<Stream>();
        device->null_stream->device = device.get();
        s.devices.push_back(std::move(device));
    }
    return SUCCESS;
}

// As the driver: the library that the variable names is loaded once, and its answer changes nothing.
static void inject() {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : nullptr;
    void *function = library ? dlsym(library, "InitializeInjection") : nullptr;
    if (function) reinterpret_cast<int (*)()>(function)();
}

EXPORT CUresult cuInit(unsigned flags) {
    CUresult code = initialize(flags);
    static std::once_flag once;
    if (code == SUCCESS) std::call_once(once, inject);
    return code;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion, Nothing);
    if (!version) return call.answer(INVALID_VALUE);
    *version = int(setting("FAKE_CUDA_DRIVER_VERSION", 13000));
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount, Init);
    *count = int(state().devices.size());
    return SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *out, int ordinal) {
    ENTER(cuDeviceGet, Init);
    if (!out || !device(ordinal)) return call.answer(INVALID_DEVICE);
    *out = ordinal;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice dev) {
    ENTER(cuDeviceGetName, Init);
    if (!device(dev)) return call.answer(INVALID_DEVICE);
    const char *set = getenv("FAKE_CUDA_NAME");
    snprintf(name, size_t(length), "%s", set ? set : "Software CUDA device");
    return SUCCESS;
}

static uint64_t total_memory() { return setting("FAKE_CUDA_MEMORY", 8ull << 30); }

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    ENTER(cuDeviceTotalMem_v2, Init);
    if (!device(dev)) return call.answer(INVALID_DEVICE);
    *bytes = total_memory();
    return SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER(cuMemGetInfo_v2, Context);
    *total = total_memory();
    *free = *total - call.device()->used;
    return SUCCESS;
}

static CUresult identity(CUuuid *uuid, CUdevice dev, Call &call) {
    if (!device(dev)) return call.answer(INVALID_DEVICE);
    memset(uuid->bytes, 0, sizeof uuid->bytes);
    memcpy(uuid->bytes, "software", 8);
    uuid->bytes[15] = char(dev);
    return SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    ENTER(cuDeviceGetUuid, Init);
    return identity(uuid, dev, call);
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    ENTER(cuDeviceGetUuid_v2, Init);
    return identity(uuid, dev, call);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice dev) {
    ENTER(cuDeviceGetPCIBusId, Init);
    if (!device(dev)) return call.answer(INVALID_DEVICE);
    snprintf(id, size_t(length), "0000:%02X:00.0", dev + 1);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice dev) {
    ENTER(cuDeviceGetAttribute, Init);
    if (!device(dev)) return call.answer(INVALID_DEVICE);
    int sm = int(setting("FAKE_CUDA_SM", 90));
    static const std::map<int, int> fixed = {
        {1, 1024},   {2, 1024},       {3, 1024},      {4, 64},         {5, 2147483647}, {6, 65535},
        {7, 65535},  {8, 49152},      {9, 65536},     {10, 32},        {11, 2147483647},
        {12, 65536}, {13, 1980000},   {14, 512},      {15, 1},         {17, 0},         {18, 0},
        {19, 1},     {20, 0},         {31, 1},        {32, 1},         {34, 0},         {35, 0},
        {36, 2619000}, {37, 5120},    {38, 52428800}, {39, 2048},      {40, 3},         {41, 1},
        {50, 0},     {78, 1},         {81, 233472},   {82, 65536},     {83, 1},         {84, 0},
        {95, 1},     {96, 1},         {97, 232448},   {106, 32},       {111, 1024},
    };
    auto found = fixed.find(attribute);
    if (found != fixed.end()) *value = found->second;
    else if (attribute == 16) *value = int(setting("FAKE_CUDA_MULTIPROCESSORS", 4));
    else if (attribute == 33) *value = dev + 1;
    else if (attribute == 75) *value = sm / 10;
    else if (attribute == 76) *value = sm % 10;
    else return call.answer(INVALID_VALUE);
    return SUCCESS;
}

static int reaches(CUdevice from, CUdevice to) {
    return from != to && setting("FAKE_CUDA_P2P", 1) != 0;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice from, CUdevice to) {
    ENTER(cuDeviceCanAccessPeer, Init);
    if (!device(from) || !device(to)) return call.answer(INVALID_DEVICE);
    *can = reaches(from, to);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to) {
    ENTER(cuDeviceGetP2PAttribute, Init);
    if (!device(from) || !device(to) || from == to) return call.answer(INVALID_DEVICE);
    // 1 performance rank, 2 access, 3 native atomics, 4 array access
    if (attribute < 1 || attribute > 4) return call.answer(INVALID_VALUE);
    *value = attribute == 1 ? 0 : reaches(from, to);
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice dev) {
    ENTER(cuDevicePrimaryCtxRetain, Init);
    Device *found = device(dev);
    if (!found) return call.answer(INVALID_DEVICE);
    found->retained++;
    *context = found->context;
    return SUCCESS;
}

static CUresult release(CUdevice dev, Call &call) {
    Device *found = device(dev);
    if (!found || found->retained == 0) return call.answer(INVALID_CONTEXT);
    // The last release destroys the context; what was left in it is work done in vain.
    if (found->retained == 1 && found->pending)
        Line("released_with_work").number("device", uint64_t(dev)).number("pending", found->pending);
    found->retained--;
    return SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    ENTER(cuDevicePrimaryCtxRelease, Init);
    return release(dev, call);
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    ENTER(cuDevicePrimaryCtxRelease_v2, Init);
    return release(dev, call);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent, Init);
    Device *found = of_context(context);
    if (context && !found) return call.answer(INVALID_CONTEXT);
    current = found;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER(cuCtxGetCurrent, Init);
    *context = current ? current->context : nullptr;
    return SUCCESS;
}

static thread_local std::vector<Device *> stack;

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(cuCtxPushCurrent_v2, Init);
    Device *found = of_context(context);
    if (!found) return call.answer(INVALID_CONTEXT);
    stack.push_back(current);
    current = found;
    return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER(cuCtxPopCurrent_v2, Init);
    if (!current) return call.answer(INVALID_CONTEXT);
    if (context) *context = current->context;
    current = stack.empty() ? nullptr : stack.back();
    if (!stack.empty()) stack.pop_back();
    return SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *dev) {
    ENTER(cuCtxGetDevice, Context);
    *dev = current->index;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cuCtxGetStreamPriorityRange, Context);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

EXPORT CUresult cuCtxSynchronize() {
    ENTER(cuCtxSynchronize, Context);
    REFUSE_IN_CAPTURE();
    Device *device = current;
    CUresult code = run_until(call, *device, [=] { return device->pending == 0; });
    if (!code) Line("sync").number("device", uint64_t(device->index));
    return call.answer(code);
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER(cuCtxEnablePeerAccess, Context);
    Device *other = of_context(peer);
    if (!other || flags) return call.answer(INVALID_VALUE);
    if (!reaches(current->index, other->index)) return call.answer(PEER_ACCESS_UNSUPPORTED);
    for (auto &pair : state().peers)
        if (pair == std::make_pair(current->index, other->index))
            return call.answer(PEER_ACCESS_ALREADY_ENABLED);
    state().peers.push_back({current->index, other->index});
    return SUCCESS;
}

extern "C" __attribute__((visibility("default"))) int fakeCudaDevice() {
    return current ? current->index : -1;
}
