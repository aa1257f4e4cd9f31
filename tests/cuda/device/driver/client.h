// For libraries beside the software device: finds it among what the process has loaded. None of them
// loads it: without a driver they must be able to say so.
#pragma once
#include <dlfcn.h>

#include "hook.h"

namespace fake {
struct Driver {
    decltype(&fakeCudaEnqueue) enqueue = nullptr;
    decltype(&fakeCudaDevice) device = nullptr;
    decltype(&fakeCudaHolds) holds = nullptr;
    decltype(&fakeCudaTake) take = nullptr;
    explicit operator bool() const { return enqueue && device && holds && take; }
};

inline Driver driver() {
    Driver found;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return found;
    found.enqueue = reinterpret_cast<decltype(found.enqueue)>(dlsym(library, "fakeCudaEnqueue"));
    found.device = reinterpret_cast<decltype(found.device)>(dlsym(library, "fakeCudaDevice"));
    found.holds = reinterpret_cast<decltype(found.holds)>(dlsym(library, "fakeCudaHolds"));
    found.take = reinterpret_cast<decltype(found.take)>(dlsym(library, "fakeCudaTake"));
    return found;
}
} // namespace fake
