// Graphs: what a capture made, executable copies of it, launches.
#include "state.h"

EXPORT CUresult cuGraphDestroy(CUgraph handle) {
    ENTER(cuGraphDestroy, Init);
    auto graph = state().graphs.get(handle);
    if (!graph) return call.answer(INVALID_VALUE);
    for (auto &node : graph->nodes) state().graph_nodes.erase(node.handle);
    state().graphs.remove(handle);
    return SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    ENTER(cuGraphGetNodes, Init);
    auto graph = state().graphs.get(handle);
    if (!graph || !count) return call.answer(INVALID_VALUE);
    size_t room = nodes ? *count : 0;
    for (size_t i = 0; i < room && i < graph->nodes.size(); i++) nodes[i] = graph->nodes[i].handle;
    if (!nodes || room > graph->nodes.size()) *count = graph->nodes.size();
    return SUCCESS;
}

// The node behind a handle, with the graph it is in.
static std::pair<std::shared_ptr<Graph>, const GraphNode *> node_of(CUgraphNode handle) {
    auto found = state().graph_nodes.find(handle);
    if (found == state().graph_nodes.end()) return {};
    auto graph = found->second.first.lock();
    if (!graph) return {};
    return {graph, &graph->nodes[found->second.second]};
}

static int type(const Operation &operation) {
    switch (operation.kind) {
    case Operation::Copy: return NODE_MEMCPY;
    case Operation::Fill: return NODE_MEMSET;
    case Operation::Host: return NODE_HOST;
    case Operation::Record: return NODE_EVENT_RECORD;
    default: return NODE_KERNEL;
    }
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode handle, int *out) {
    ENTER(cuGraphNodeGetType, Init);
    auto [graph, node] = node_of(handle);
    if (!node || !out) return call.answer(INVALID_VALUE);
    *out = type(*node->operation);
    return SUCCESS;
}

EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *out, size_t *count) {
    ENTER(cuGraphNodeGetDependencies, Init);
    auto [graph, node] = node_of(handle);
    if (!node || !count) return call.answer(INVALID_VALUE);
    if (out)
        for (size_t i = 0; i < node->depends_on.size() && i < *count; i++)
            out[i] = graph->nodes[node->depends_on[i]].handle;
    *count = node->depends_on.size();
    return SUCCESS;
}

EXPORT CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    ENTER(cuGraphGetEdges, Init);
    auto graph = state().graphs.get(handle);
    if (!graph || !count) return call.answer(INVALID_VALUE);
    size_t edges = 0, room = from && to ? *count : 0;
    for (auto &node : graph->nodes)
        for (size_t before : node.depends_on) {
            if (edges < room) {
                from[edges] = graph->nodes[before].handle;
                to[edges] = node.handle;
            }
            edges++;
        }
    *count = edges;
    return SUCCESS;
}

namespace {
struct EdgeData {
    uint8_t from_port, to_port, type, reserved[5];
};
} // namespace

// A kernel that may begin early has such an edge from the kernel that its stream had before it, if nothing came between.
EXPORT CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, EdgeData *data, size_t *count) {
    ENTER(cuGraphGetEdges_v2, Init);
    auto graph = state().graphs.get(handle);
    if (!graph || !count) return call.answer(INVALID_VALUE);
    size_t edges = 0, room = from && to && data ? *count : 0;
    for (auto &node : graph->nodes)
        for (size_t before : node.depends_on) {
            if (edges < room) {
                auto &earlier = graph->nodes[before];
                from[edges] = earlier.handle;
                to[edges] = node.handle;
                bool early = node.operation->programmatic && node.depends_on.size() == 1 &&
                             earlier.operation->kind == Operation::Kernel;
                data[edges] = {0, 0, uint8_t(early), {}};
            }
            edges++;
        }
    *count = edges;
    return SUCCESS;
}

EXPORT CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent *out) {
    ENTER(cuGraphEventRecordNodeGetEvent, Init);
    auto [graph, node] = node_of(handle);
    if (!node || !out || node->operation->kind != Operation::Record) return call.answer(INVALID_VALUE);
    for (auto &[event, object] : state().events.all())
        if (object == node->operation->event) return *out = event, SUCCESS;
    return call.answer(INVALID_HANDLE);
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags, Call &call) {
    auto graph = state().graphs.get(handle);
    if (!graph || !out || flags > 15) return call.answer(INVALID_VALUE);
    if (CUresult refusal = call.unsafe_in_capture()) return call.answer(refusal);
    auto exec = std::make_shared<GraphExec>();
    exec->id = state().next_id++;
    exec->device = graph->device;
    exec->nodes = graph->nodes;
    for (auto &node : exec->nodes) {
        exec->clones.push_back(state().next_id++);
        if (observer()) observer()->node(reinterpret_cast<uint64_t>(node.handle), exec->clones.back());
    }
    Line("instantiate").number("graph", graph->id).number("exec", exec->id).number("flags", flags);
    *out = state().execs.add(exec->id, exec);
    return SUCCESS;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags, Context);
    return instantiate(out, graph, flags, call);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle) {
    ENTER(cuGraphExecDestroy, Init);
    return call.answer(state().execs.remove(handle) ? SUCCESS : INVALID_VALUE);
}

EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec handle, CUgraphNode node,
                                                   CUevent event_handle) {
    ENTER(cuGraphExecEventRecordNodeSetEvent, Init);
    auto exec = state().execs.get(handle);
    auto event = state().events.get(event_handle);
    if (!exec || !event) return call.answer(INVALID_HANDLE);
    for (auto &own : exec->nodes) {
        if (own.handle != node || own.operation->kind != Operation::Record) continue;
        auto changed = std::make_shared<Operation>(*own.operation);
        changed->event = event;
        own.operation = changed;
        return SUCCESS;
    }
    return call.answer(INVALID_VALUE);
}

NodePtr launch_graph(Stream &stream, GraphExec &exec) {
    static const auto begin_mark = [] {
        auto op = std::make_shared<Operation>();
        op->name = "graph";
        return op;
    }();
    static const auto end_mark = std::make_shared<Operation>();
    std::vector<NodePtr> before;
    if (stream.tail) before.push_back(stream.tail);
    if (exec.last) before.push_back(exec.last);
    NodePtr begin = add_node(*stream.device, begin_mark, before);
    std::vector<NodePtr> made;
    for (auto &node : exec.nodes) {
        std::vector<NodePtr> depends_on;
        for (size_t index : node.depends_on) depends_on.push_back(made[index]);
        if (depends_on.empty()) depends_on.push_back(begin);
        made.push_back(add_node(*stream.device, node.operation, depends_on));
        made.back()->stream = stream.id;
        made.back()->graph_node = exec.clones[made.size() - 1];
        if (node.operation->kind == Operation::Record) {
            node.operation->event->capture = nullptr;
            node.operation->event->recorded = made.back();
        }
    }
    made.push_back(begin);
    NodePtr end = add_node(*stream.device, end_mark, made);
    Line("graph_launch").number("exec", exec.id).number("stream", stream.id)
        .number("begin", begin->id).number("end", end->id);
    stream.tail = exec.last = end;
    return end;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    ENTER(cuGraphLaunch, Context);
    auto exec = state().execs.get(handle);
    auto stream = stream_of(call, stream_handle);
    if (!exec || !stream) return call.answer(INVALID_HANDLE);
    // Graphs within graphs are not offered.
    if (stream->capture) return call.answer(NOT_SUPPORTED);
    host_clock(2000);
    launch_graph(*stream, *exec);
    return SUCCESS;
}

EXPORT CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
    ENTER(cuGraphUpload, Context);
    auto stream = stream_of(call, stream_handle);
    if (!state().execs.get(handle) || !stream) return call.answer(INVALID_HANDLE);
    if (stream->capture) return call.answer(CAPTURE_UNSUPPORTED);
    return SUCCESS;
}
