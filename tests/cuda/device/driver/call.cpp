// What every call of the interface goes through: the lock, faults, the sticky error, host time.
#include "state.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

State &state() {
    static State *the = new State;
    return *the;
}

uint64_t setting(const char *variable, uint64_t fallback) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, nullptr, 10) : fallback;
}

// A call takes the host some time, so that work enqueued one by one is slower than a graph.
static constexpr uint64_t CALL_NS = 300;

static std::atomic<const FakeObserver *> observing{nullptr};
const FakeObserver *observer() { return observing.load(); }
EXPORT void fakeCudaObserve(const FakeObserver *observer) { observing = observer; }

uint32_t &current_correlation() {
    static thread_local uint32_t current = 0;
    return current;
}

Call::Call(const char *function, Needs needs) : function(function), held(state().lock) {
    static uint32_t last = 0;
    entered = host_clock(CALL_NS);
    correlation = current_correlation() = ++last;
    if (CUresult code = injected_failure(function)) {
        refusal = answer(code);
    } else if (needs >= Init && !state().initialized) {
        refusal = answer(NOT_INITIALIZED);
    } else if (needs == Context) {
        Device *device = current_device();
        if (!device || device->retained == 0) refusal = answer(INVALID_CONTEXT);
        else if (device->broken) refusal = answer(device->broken);
    }
}

Call::~Call() {
    if (observer() && held.owns_lock()) observer()->called(function, entered, host_clock(0), correlation);
}

CUresult Call::answer(CUresult code) const {
    if (code) Line("error").string("function", function).number("code", code);
    return code;
}

CUresult Call::not_ready() const {
    host_clock_goes_back(CALL_NS);
    return NOT_READY;
}

Device *Call::device() const { return current_device(); }

static thread_local int thread_mode = CAPTURE_GLOBAL;

CUresult Call::unsafe_in_capture() {
    if (thread_mode == CAPTURE_RELAXED) return SUCCESS;
    for (auto &capture : state().captures) {
        bool ours = capture->thread == std::this_thread::get_id();
        bool forbids = capture->mode == CAPTURE_GLOBAL ? (ours || thread_mode == CAPTURE_GLOBAL)
                                                       : capture->mode == CAPTURE_THREAD_LOCAL && ours;
        if (!forbids) continue;
        capture->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    return SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER(cuThreadExchangeStreamCaptureMode, Init);
    if (!mode || *mode < CAPTURE_GLOBAL || *mode > CAPTURE_RELAXED) return call.answer(INVALID_VALUE);
    std::swap(*mode, thread_mode);
    return SUCCESS;
}

namespace {
struct Named {
    CUresult code;
    const char *name, *text;
};
const Named NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver "
                                               "combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};
} // namespace

EXPORT CUresult cuGetErrorName(CUresult code, const char **text) {
    for (const auto &named : NAMES)
        if (named.code == code) return *text = named.name, SUCCESS;
    *text = nullptr;
    return INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
    for (const auto &named : NAMES)
        if (named.code == code) return *text = named.text, SUCCESS;
    *text = nullptr;
    return INVALID_VALUE;
}
