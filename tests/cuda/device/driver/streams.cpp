// Streams and events.
#include "state.h"

// This thread knows that the node is done: what it enqueues from now on comes after it.
static void synchronized(const Node &node) {
    host_clock_reaches(node.end);
    Line("sync").number("node", node.id);
}

std::shared_ptr<Stream> stream_of(const Call &call, CUstream handle) {
    // 1 and 2 name the legacy and the thread's own default stream.
    if (!handle || handle == reinterpret_cast<void *>(1) || handle == reinterpret_cast<void *>(2))
        return call.device()->null_stream;
    return state().streams.get(handle);
}

static CUresult create(CUstream *out, unsigned flags, int priority, Call &call) {
    if (!out || flags > STREAM_NON_BLOCKING) return call.answer(INVALID_VALUE);
    auto stream = std::make_shared<Stream>();
    stream->id = state().next_id++;
    stream->device = call.device();
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    Line("stream").number("stream", stream->id).number("device", uint64_t(stream->device->index))
        .string("priority", std::to_string(stream->priority));
    *out = state().streams.add(stream->id, stream);
    return SUCCESS;
}
EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    ENTER(cuStreamCreateWithPriority, Context);
    return create(out, flags, priority, call);
}
EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    ENTER(cuStreamCreate, Context);
    return create(out, flags, 0, call);
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    ENTER(cuStreamGetPriority, Context);
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    *priority = stream->priority;
    return SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
    // Work that is still pending completes; the driver frees the stream after it.
    ENTER(cuStreamDestroy_v2, Context);
    auto stream = state().streams.get(handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (stream->capture) stream->capture->invalid = true;
    state().streams.remove(handle);
    return SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
    ENTER(cuStreamSynchronize, Context);
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (stream->capture) stream->capture->invalid = true;
    if (stream->capture) return call.answer(CAPTURE_UNSUPPORTED);
    REFUSE_IN_CAPTURE();
    NodePtr tail = stream->tail;
    if (!tail) return SUCCESS;
    CUresult code = run_until(call, *stream->device, [=] { return tail->state == Node::Done; });
    if (!code) synchronized(*tail);
    return call.answer(code);
}

EXPORT CUresult cuStreamQuery(CUstream handle) {
    ENTER(cuStreamQuery, Context);
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (stream->capture) stream->capture->invalid = true;
    if (stream->capture) return call.answer(CAPTURE_UNSUPPORTED);
    REFUSE_IN_CAPTURE();
    if (!stream->tail) return SUCCESS;
    run_some();
    if (stream->device->broken) return call.answer(stream->device->broken);
    if (stream->tail->state != Node::Done) return call.not_ready();
    synchronized(*stream->tail);
    return SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER(cuEventCreate, Context);
    // 1 blocking wait, 2 no timing, 4 between processes
    if (!out || flags > 7) return call.answer(INVALID_VALUE);
    auto event = std::make_shared<Event>();
    event->id = state().next_id++;
    event->flags = flags;
    *out = state().events.add(event->id, event);
    return SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
    ENTER(cuEventDestroy_v2, Context);
    return call.answer(state().events.remove(handle) ? SUCCESS : INVALID_HANDLE);
}

static CUresult record(CUevent handle, CUstream stream_handle, bool external, Call &call) {
    auto event = state().events.get(handle);
    auto stream = stream_of(call, stream_handle);
    if (!event || !stream) return call.answer(INVALID_HANDLE);
    if (external && !stream->capture) return call.answer(INVALID_VALUE);
    if (stream->capture && stream->capture->invalid) return call.answer(CAPTURE_INVALIDATED);
    if (stream->capture && !external) {
        event->capture = stream->capture;
        event->leaves = stream->leaves;
        event->recorded = nullptr;
        Line("record").number("stream", stream->id).number("event", event->id)
            .number("graph", stream->capture->graph->id);
        return SUCCESS;
    }
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Record;
    op->name = "record";
    op->event = event;
    if (CUresult code = enqueue(*stream, op)) return call.answer(code);
    if (stream->capture) return SUCCESS;
    event->capture = nullptr;
    event->recorded = stream->tail;
    return SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord, Context);
    return record(event, stream, false, call);
}
EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    ENTER(cuEventRecordWithFlags, Context);
    if (flags > RECORD_EXTERNAL) return call.answer(INVALID_VALUE);
    return record(event, stream, flags == RECORD_EXTERNAL, call);
}

// A stream that waits for an event of a capture joins it.
static CUresult wait_in_capture(Stream &stream, const std::shared_ptr<Stream> &shared, Event &event) {
    if (event.capture->ended) return CAPTURED_EVENT;
    if (stream.id == 0) return event.capture->invalid = true, CAPTURE_IMPLICIT;
    if (stream.capture && stream.capture != event.capture) {
        stream.capture->invalid = event.capture->invalid = true;
        return CAPTURE_MERGE;
    }
    if (event.capture->invalid) return CAPTURE_INVALIDATED;
    if (!stream.capture) {
        stream.capture = event.capture;
        stream.capture->streams.push_back(shared);
        stream.leaves.clear();
    }
    for (size_t leaf : event.leaves) {
        bool there = false;
        for (size_t have : stream.leaves) there = there || have == leaf;
        if (!there) stream.leaves.push_back(leaf);
    }
    Line("wait").number("stream", stream.id).number("event", event.id)
        .number("graph", stream.capture->graph->id);
    return SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
    ENTER(cuStreamWaitEvent, Context);
    auto event = state().events.get(handle);
    auto stream = stream_of(call, stream_handle);
    if (!event || !stream) return call.answer(INVALID_HANDLE);
    // Waits for events from outside of a capture are not offered.
    if (flags) return call.answer(NOT_SUPPORTED);
    if (event->capture) return call.answer(wait_in_capture(*stream, stream, *event));
    if (stream->capture) {
        stream->capture->invalid = true;
        return call.answer(CAPTURE_ISOLATION);
    }
    if (!event->recorded) return SUCCESS;
    auto op = std::make_shared<Operation>();
    op->kind = Operation::Wait;
    op->name = "wait";
    op->event = event;
    return call.answer(enqueue(*stream, op, {event->recorded}));
}

EXPORT CUresult cuEventQuery(CUevent handle) {
    ENTER(cuEventQuery, Context);
    auto event = state().events.get(handle);
    if (!event) return call.answer(INVALID_HANDLE);
    if (event->capture) return call.answer(CAPTURED_EVENT);
    REFUSE_IN_CAPTURE();
    if (!event->recorded) return SUCCESS;
    run_some();
    if (call.device()->broken) return call.answer(call.device()->broken);
    if (event->recorded->state != Node::Done) return call.not_ready();
    synchronized(*event->recorded);
    return SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent handle) {
    ENTER(cuEventSynchronize, Context);
    auto event = state().events.get(handle);
    if (!event) return call.answer(INVALID_HANDLE);
    if (event->capture) return call.answer(CAPTURED_EVENT);
    REFUSE_IN_CAPTURE();
    NodePtr node = event->recorded;
    if (!node) return SUCCESS;
    CUresult code = run_until(call, *node->device, [=] { return node->state == Node::Done; });
    if (!code) synchronized(*node);
    return call.answer(code);
}

static CUresult elapsed(float *ms, CUevent from_handle, CUevent to_handle, Call &call) {
    auto from = state().events.get(from_handle), to = state().events.get(to_handle);
    if (!ms || !from || !to) return call.answer(INVALID_HANDLE);
    if ((from->flags | to->flags) & EVENT_DISABLE_TIMING) return call.answer(INVALID_HANDLE);
    if (from->capture || to->capture) return call.answer(CAPTURED_EVENT);
    if (!from->recorded || !to->recorded) return call.answer(INVALID_HANDLE);
    if (from->recorded->state != Node::Done || to->recorded->state != Node::Done) return NOT_READY;
    *ms = float((double(to->recorded->end) - double(from->recorded->end)) / 1e6);
    return SUCCESS;
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    ENTER(cuEventElapsedTime, Context);
    return elapsed(ms, from, to, call);
}
EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to) {
    ENTER(cuEventElapsedTime_v2, Context);
    return elapsed(ms, from, to, call);
}
