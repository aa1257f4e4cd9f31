// The part of the CUDA driver interface that the software device offers: types, numbers and names
// as NVIDIA's documentation of the driver API gives them, declared anew.
#pragma once
#include <cstddef>
#include <cstdint>

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
// Handles are numbers in pointers' clothes: never dereferenced, never used twice.
using CUcontext = void *;
using CUmodule = void *;
using CUfunction = void *;
using CUstream = void *;
using CUevent = void *;
using CUgraph = void *;
using CUgraphNode = void *;
using CUgraphExec = void *;
using CUhostFn = void (*)(void *);

enum : CUresult {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
};

enum { EVENT_DISABLE_TIMING = 2, RECORD_EXTERNAL = 1, STREAM_NON_BLOCKING = 1 };
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
enum { NODE_KERNEL = 0, NODE_MEMCPY = 1, NODE_MEMSET = 2, NODE_HOST = 3, NODE_EVENT_RECORD = 7 };

struct CUlaunchAttribute {
    unsigned id;
    char pad[4];
    union {
        char bytes[64];
        int programmatic;
    } value;
};
enum { ATTRIBUTE_PROGRAMMATIC = 6 };

struct CUlaunchConfig {
    unsigned grid[3], block[3];
    unsigned shared;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned count;
};

struct CUuuid {
    char bytes[16];
};

#define EXPORT extern "C" __attribute__((visibility("default")))
