// Copies and fills. Synchronous ones run on the context's own stream and wait for no non-blocking
// stream, as the driver's; asynchronous ones from pageable memory are read at once, from page-locked
// memory when their turn comes.
#include "state.h"

#include <cstring>

namespace {
struct Transfer {
    uint64_t to, from, bytes;
    bool to_host, from_host;
};

OperationPtr operation(const Transfer &t, bool staged) {
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Copy;
    op->name = t.to_host ? "copy_to_host" : t.from_host ? "copy_to_device" : "copy";
    op->to = t.to;
    op->from = t.from;
    op->bytes = t.bytes;
    if (staged) {
        auto *from = reinterpret_cast<const uint8_t *>(t.from);
        op->staged.assign(from, from + t.bytes);
    }
    if (!t.from_host) op->reads.push_back({t.from, t.bytes});
    if (!t.to_host) op->writes.push_back({t.to, t.bytes});
    return op;
}

bool valid(const Transfer &t) {
    bool to = t.to_host ? t.to != 0 : device_holds(t.to, t.bytes);
    bool from = t.from_host ? t.from != 0 : device_holds(t.from, t.bytes);
    return t.bytes == 0 || (to && from);
}

CUresult wait_for(Call &call, Stream &stream) {
    NodePtr tail = stream.tail;
    CUresult code = run_until(call, *stream.device, [=] { return tail->state == Node::Done; });
    if (code) return code;
    host_clock_reaches(tail->end);
    Line("sync").number("node", tail->id);
    return SUCCESS;
}

CUresult now(Call &call, const Transfer &t) {
    if (CUresult refusal = call.unsafe_in_capture()) return call.answer(refusal);
    if (!valid(t)) return call.answer(INVALID_VALUE);
    if (t.bytes == 0) return SUCCESS;
    Stream &stream = *call.device()->null_stream;
    CUresult code = enqueue(stream, operation(t, false));
    return call.answer(code ? code : wait_for(call, stream));
}

CUresult later(Call &call, const Transfer &t, CUstream handle) {
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (!valid(t)) return call.answer(INVALID_VALUE);
    if (t.bytes == 0) return SUCCESS;
    bool capturing = stream->capture != nullptr;
    bool staged = t.from_host && !pinned(t.from, t.bytes) && !capturing;
    CUresult code = enqueue(*stream, operation(t, staged));
    if (code) return call.answer(code);
    // Into pageable memory the call returns when the copy is done.
    bool pageable = t.to_host && !pinned(t.to, t.bytes);
    return call.answer(pageable && !capturing ? wait_for(call, *stream) : SUCCESS);
}

CUresult fill(Call &call, uint64_t to, uint32_t value, uint32_t width, uint64_t count, CUstream handle,
              bool wait) {
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (wait)
        if (CUresult refusal = call.unsafe_in_capture()) return call.answer(refusal);
    if (count && (!device_holds(to, count * width) || to % width)) return call.answer(INVALID_VALUE);
    if (count == 0) return SUCCESS;
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Fill;
    op->name = "fill";
    op->to = to;
    op->value = value;
    op->width = width;
    op->bytes = count * width;
    op->writes.push_back({to, op->bytes});
    CUresult code = enqueue(*stream, op);
    return call.answer(code || !wait ? code : wait_for(call, *stream));
}
} // namespace

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER(cuMemcpyHtoD_v2, Context);
    return now(call, {to, reinterpret_cast<uint64_t>(from), bytes, false, true});
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER(cuMemcpyDtoH_v2, Context);
    return now(call, {reinterpret_cast<uint64_t>(to), from, bytes, true, false});
}
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER(cuMemcpyDtoD_v2, Context);
    return now(call, {to, from, bytes, false, false});
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync_v2, Context);
    return later(call, {to, reinterpret_cast<uint64_t>(from), bytes, false, true}, stream);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync_v2, Context);
    return later(call, {reinterpret_cast<uint64_t>(to), from, bytes, true, false}, stream);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync_v2, Context);
    return later(call, {to, from, bytes, false, false}, stream);
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyAsync, Context);
    return later(call, {to, from, bytes, !device_holds(to, bytes), !device_holds(from, bytes)}, stream);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    ENTER(cuMemsetD8_v2, Context);
    return fill(call, to, value, 1, count, nullptr, true);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    ENTER(cuMemsetD8Async, Context);
    return fill(call, to, value, 1, count, stream, false);
}
EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    ENTER(cuMemsetD16Async, Context);
    return fill(call, to, value, 2, count, stream, false);
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    ENTER(cuMemsetD32Async, Context);
    return fill(call, to, value, 4, count, stream, false);
}
