// Memory: every allocation has pages of its own with pages behind and before it that nobody may touch,
// so that a kernel that reads or writes past its end is caught at the byte (to 16 bytes). Fresh memory
// is full of 0xFF, which is NaN in every float type and an absurd index.
#include "state.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

static constexpr uint64_t GRAIN = 16;
static constexpr uint64_t PAGE = 4096;
static constexpr uint8_t POISON = 0xff, CANARY = 0xc5;

static bool allocate(Device *device, uint64_t bytes, bool host, Allocation &out) {
    uint64_t used = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    uint64_t pages = (used + PAGE - 1) / PAGE * PAGE;
    void *mapping = mmap(nullptr, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);
    if (mapping == MAP_FAILED) return false;
    char *inner = static_cast<char *>(mapping) + PAGE;
    if (mprotect(inner, pages, PROT_READ | PROT_WRITE)) {
        munmap(mapping, pages + 2 * PAGE);
        return false;
    }
    char *start = inner + pages - used;
    memset(inner, CANARY, size_t(start - inner));
    memset(start, POISON, bytes);
    memset(start + bytes, CANARY, used - bytes);
    out.device = device;
    out.address = reinterpret_cast<uint64_t>(start);
    out.bytes = bytes;
    out.mapping = reinterpret_cast<uint64_t>(mapping);
    out.mapped = pages + 2 * PAGE;
    out.host = host;
    state().allocations[out.address] = out;
    return true;
}

std::string damage(const Allocation &allocation) {
    auto wrong = [](uint64_t from, uint64_t to) {
        for (uint64_t at = from; at < to; at++)
            if (*reinterpret_cast<uint8_t *>(at) != CANARY) return true;
        return false;
    };
    uint64_t end = allocation.address + allocation.bytes;
    uint64_t mapped_end = allocation.mapping + allocation.mapped - PAGE;
    if (wrong(allocation.mapping + PAGE, allocation.address)) return "bytes before it";
    if (wrong(end, mapped_end)) return "bytes behind it";
    return "";
}

void release_allocation(Allocation &allocation) {
    munmap(reinterpret_cast<void *>(allocation.mapping), allocation.mapped);
}

static const Allocation *containing(uint64_t address, uint64_t bytes) {
    auto &all = state().allocations;
    auto after = all.upper_bound(address);
    if (after == all.begin()) return nullptr;
    const Allocation &found = std::prev(after)->second;
    return address + bytes <= found.address + found.bytes ? &found : nullptr;
}

bool device_holds(uint64_t address, uint64_t bytes) {
    const Allocation *found = containing(address, bytes);
    return found && !found->host;
}

bool pinned(uint64_t address, uint64_t bytes) {
    const Allocation *found = containing(address, bytes);
    return found && found->host;
}

extern "C" __attribute__((visibility("default"))) int fakeCudaHolds(uint64_t address, uint64_t bytes) {
    std::lock_guard<std::mutex> held(state().lock);
    return device_holds(address, bytes);
}

extern "C" __attribute__((visibility("default"))) int fakeCudaTake(uint64_t bytes) {
    Call call("fakeCudaTake", Call::Context);
    if (call.refused()) return call.refused();
    Device *device = call.device();
    if (device->used + bytes > setting("FAKE_CUDA_MEMORY", 8ull << 30)) return OUT_OF_MEMORY;
    device->used += bytes;
    return SUCCESS;
}

std::string describe_address(uint64_t address) {
    char text[160];
    for (auto &[start, allocation] : state().allocations) {
        if (address < allocation.mapping || address >= allocation.mapping + allocation.mapped) continue;
        long long offset = (long long)(address - start);
        snprintf(text, sizeof text, "%#llx: byte %lld of an allocation of %llu bytes at %#llx",
                 (unsigned long long)address, offset, (unsigned long long)allocation.bytes,
                 (unsigned long long)start);
        return text;
    }
    snprintf(text, sizeof text, "%#llx: in no allocation", (unsigned long long)address);
    return text;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    ENTER(cuMemAlloc_v2, Context);
    REFUSE_IN_CAPTURE();
    if (!out || bytes == 0) return call.answer(INVALID_VALUE);
    Device *device = call.device();
    uint64_t total = setting("FAKE_CUDA_MEMORY", 8ull << 30);
    // As the driver, in units of 512 bytes at least.
    uint64_t counted = (bytes + 511) / 512 * 512;
    Allocation made;
    if (device->used + counted > total || !allocate(device, bytes, false, made))
        return call.answer(OUT_OF_MEMORY);
    device->used += counted;
    *out = made.address;
    Line("alloc").number("device", uint64_t(device->index)).address("address", made.address).number("bytes", bytes);
    return SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER(cuMemFree_v2, Context);
    REFUSE_IN_CAPTURE();
    auto found = state().allocations.find(address);
    if (found == state().allocations.end() || found->second.host) return call.answer(INVALID_VALUE);
    // In effect the driver waits for the device here.
    Device *device = found->second.device;
    CUresult code = run_until(call, *device, [=] { return device->pending == 0; });
    if (code) return call.answer(code);
    found = state().allocations.find(address);
    if (found == state().allocations.end()) return call.answer(INVALID_VALUE);
    std::string wrong = damage(found->second);
    if (!wrong.empty()) {
        fprintf(stderr, "software CUDA device: an allocation of %llu bytes is freed and %s were overwritten\n",
                (unsigned long long)found->second.bytes, wrong.c_str());
        device->broken = ILLEGAL_ADDRESS;
        return call.answer(ILLEGAL_ADDRESS);
    }
    device->used -= (found->second.bytes + 511) / 512 * 512;
    Line("free").number("device", uint64_t(device->index)).address("address", address)
        .number("bytes", found->second.bytes);
    release_allocation(found->second);
    state().allocations.erase(found);
    return SUCCESS;
}

static CUresult host_alloc(void **out, size_t bytes, Call &call) {
    Allocation made;
    if (!out || bytes == 0) return call.answer(INVALID_VALUE);
    if (!allocate(call.device(), bytes, true, made)) return call.answer(OUT_OF_MEMORY);
    *out = reinterpret_cast<void *>(made.address);
    return SUCCESS;
}
EXPORT CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned) {
    ENTER(cuMemHostAlloc, Context);
    REFUSE_IN_CAPTURE();
    return host_alloc(out, bytes, call);
}
EXPORT CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    ENTER(cuMemAllocHost_v2, Context);
    REFUSE_IN_CAPTURE();
    return host_alloc(out, bytes, call);
}

EXPORT CUresult cuMemFreeHost(void *address) {
    ENTER(cuMemFreeHost, Context);
    REFUSE_IN_CAPTURE();
    auto found = state().allocations.find(reinterpret_cast<uint64_t>(address));
    if (found == state().allocations.end() || !found->second.host) return call.answer(INVALID_VALUE);
    Device *device = found->second.device;
    CUresult code = run_until(call, *device, [=] { return device->pending == 0; });
    if (code) return call.answer(code);
    release_allocation(found->second);
    state().allocations.erase(found);
    return SUCCESS;
}
