// Stream capture: begins and ends, and the rules between (NVIDIA's programming guide, "Creating a Graph
// Using Stream Capture"). A broken rule spoils the capture; its end then says so.
#include "state.h"

size_t capture_node(Stream &stream, OperationPtr operation) {
    Graph &graph = *stream.capture->graph;
    size_t index = graph.nodes.size();
    GraphNode node;
    node.handle = reinterpret_cast<void *>(0x0fd0000000000000ull + state().next_id++ * 16);
    node.operation = std::move(operation);
    node.depends_on = stream.leaves;
    state().graph_nodes[node.handle] = {stream.capture->graph, index};
    Line("node").number("graph", graph.id).number("node", index).number("stream", stream.id)
        .list("after", node.depends_on).operation(*node.operation);
    if (observer()) observer()->node(0, reinterpret_cast<uint64_t>(node.handle));
    graph.nodes.push_back(std::move(node));
    stream.leaves = {index};
    return index;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    ENTER(cuStreamBeginCapture_v2, Context);
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED) return call.answer(INVALID_VALUE);
    if (stream->id == 0) return call.answer(CAPTURE_UNSUPPORTED);
    if (stream->capture) {
        stream->capture->invalid = true;
        return call.answer(INVALID_VALUE);
    }
    auto capture = std::make_shared<Capture>();
    capture->graph = std::make_shared<Graph>();
    capture->graph->id = state().next_id++;
    capture->graph->device = stream->device;
    capture->origin = stream;
    capture->streams.push_back(stream);
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    stream->capture = capture;
    stream->leaves.clear();
    state().captures.push_back(capture);
    Line("begin_capture").number("stream", stream->id).number("graph", capture->graph->id);
    return SUCCESS;
}

// Whether the end of the origin stream comes after every node.
static bool joined(const Graph &graph, const std::vector<size_t> &leaves) {
    std::vector<bool> seen(graph.nodes.size());
    std::vector<size_t> todo = leaves;
    while (!todo.empty()) {
        size_t at = todo.back();
        todo.pop_back();
        if (seen[at]) continue;
        seen[at] = true;
        todo.insert(todo.end(), graph.nodes[at].depends_on.begin(), graph.nodes[at].depends_on.end());
    }
    for (bool s : seen)
        if (!s) return false;
    return true;
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
    ENTER(cuStreamEndCapture, Context);
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    if (!stream->capture || !out) return call.answer(INVALID_VALUE);
    auto capture = stream->capture;
    *out = nullptr;
    if (capture->origin != stream) {
        capture->invalid = true;
        return call.answer(CAPTURE_UNMATCHED);
    }
    if (capture->mode != CAPTURE_RELAXED && capture->thread != std::this_thread::get_id())
        return call.answer(CAPTURE_WRONG_THREAD);
    bool all = joined(*capture->graph, stream->leaves);
    capture->ended = true;
    for (auto &weak : capture->streams)
        if (auto other = weak.lock()) {
            other->capture = nullptr;
            other->leaves.clear();
        }
    capture->origin = nullptr;
    auto &captures = state().captures;
    for (size_t i = 0; i < captures.size(); i++)
        if (captures[i] == capture) captures.erase(captures.begin() + long(i--));
    if (capture->invalid) return call.answer(CAPTURE_INVALIDATED);
    if (!all) return call.answer(CAPTURE_UNJOINED);
    Line("end_capture").number("stream", stream->id).number("graph", capture->graph->id)
        .number("nodes", capture->graph->nodes.size());
    *out = state().graphs.add(capture->graph->id, capture->graph);
    return SUCCESS;
}

static int status(const Stream &stream) {
    return !stream.capture ? 0 : stream.capture->invalid ? 2 : 1;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *out) {
    ENTER(cuStreamIsCapturing, Context);
    auto stream = stream_of(call, handle);
    if (!stream) return call.answer(INVALID_HANDLE);
    *out = status(*stream);
    return SUCCESS;
}

static thread_local std::vector<CUgraphNode> dependencies;

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int *out, uint64_t *id, CUgraph *graph,
                                          const CUgraphNode **nodes, size_t *count) {
    ENTER(cuStreamGetCaptureInfo_v2, Context);
    auto stream = stream_of(call, handle);
    if (!stream || !out) return call.answer(INVALID_HANDLE);
    *out = status(*stream);
    dependencies.clear();
    if (*out == 1) {
        auto &captured = stream->capture->graph;
        for (size_t leaf : stream->leaves) dependencies.push_back(captured->nodes[leaf].handle);
        if (id) *id = captured->id;
        // The capture still owns the graph: its handle is good for looking at it alone.
        if (graph) *graph = state().graphs.add(captured->id, captured);
    }
    if (nodes) *nodes = dependencies.data();
    if (count) *count = dependencies.size();
    return SUCCESS;
}
