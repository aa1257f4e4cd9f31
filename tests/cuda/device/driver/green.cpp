// Green contexts: multiprocessors divided between streams, as drivers for CUDA 12.5 and later do. FAKE_CUDA_GREEN=0: the
// driver refuses. Parts come in multiples of FAKE_CUDA_GREEN_UNIT (1).
#include "state.h"

namespace {
// CUdevResource of multiprocessors.
struct Resource {
    unsigned kind;
    uint8_t padding[92];
    unsigned multiprocessors;
};
constexpr unsigned SM = 1, DEFAULT_STREAM = 1;

struct Green {
    Device *device;
    unsigned multiprocessors;
};
} // namespace

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, Resource *out, unsigned kind) {
    ENTER(cuDeviceGetDevResource, Init);
    if (device < 0 || size_t(device) >= state().devices.size()) return call.answer(INVALID_DEVICE);
    if (!out || kind != SM) return call.answer(INVALID_VALUE);
    *out = {};
    out->kind = SM;
    out->multiprocessors = unsigned(setting("FAKE_CUDA_MULTIPROCESSORS", 4));
    return SUCCESS;
}

EXPORT CUresult cuDevSmResourceSplitByCount(Resource *result, unsigned *groups, const Resource *input, Resource *rest,
                                            unsigned flags, unsigned least) {
    ENTER(cuDevSmResourceSplitByCount, Init);
    if (!groups || !input || input->kind != SM || flags > 3 || least == 0) return call.answer(INVALID_VALUE);
    if (setting("FAKE_CUDA_GREEN", 1) == 0) return call.answer(NOT_SUPPORTED);
    unsigned unit = unsigned(setting("FAKE_CUDA_GREEN_UNIT", 1)), each = (least + unit - 1) / unit * unit;
    unsigned most = input->multiprocessors / each;
    *groups = *groups < most ? *groups : most;
    for (unsigned i = 0; result && i < *groups; i++) {
        result[i] = *input;
        result[i].multiprocessors = each;
    }
    if (rest) *rest = *input, rest->multiprocessors -= *groups * each;
    return SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(void **out, Resource *resources, unsigned count) {
    ENTER(cuDevResourceGenerateDesc, Init);
    if (!out || !resources || count != 1 || resources->kind != SM) return call.answer(INVALID_VALUE);
    *out = new Resource(*resources);
    return SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(void **out, void *description, CUdevice device, unsigned flags) {
    ENTER(cuGreenCtxCreate, Context);
    if (!out || !description || flags != DEFAULT_STREAM) return call.answer(INVALID_VALUE);
    auto *resource = static_cast<Resource *>(description);
    *out = new Green{state().devices.at(size_t(device)).get(), resource->multiprocessors};
    delete resource;
    return SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(void *context) {
    ENTER(cuGreenCtxDestroy, Init);
    delete static_cast<Green *>(context);
    return SUCCESS;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *out, void *context, unsigned flags, int priority) {
    ENTER(cuGreenCtxStreamCreate, Context);
    if (!out || !context || flags != STREAM_NON_BLOCKING) return call.answer(INVALID_VALUE);
    auto *green = static_cast<Green *>(context);
    auto stream = std::make_shared<Stream>();
    stream->id = state().next_id++;
    stream->device = green->device;
    stream->flags = flags;
    stream->priority = priority;
    stream->multiprocessors = green->multiprocessors;
    Line("stream").number("stream", stream->id).number("device", uint64_t(stream->device->index))
        .string("priority", std::to_string(priority)).number("multiprocessors", stream->multiprocessors);
    *out = state().streams.add(stream->id, stream);
    return SUCCESS;
}
