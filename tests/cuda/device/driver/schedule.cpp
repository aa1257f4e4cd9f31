// Pending work is a graph of dependencies; whoever waits runs it, a node at a time, in a seeded random
// order among those that may run. So work whose order nothing guarantees does run in the wrong one. A
// virtual clock says when each node would have run had all lanes run at once.
#include "state.h"

#include <algorithm>
#include <chrono>
#include <cstring>

static char hung_marker;
static void *const HUNG = &hung_marker;
static char waits_marker;
static void *const WAITS = &waits_marker;

uint64_t random_below(uint64_t bound) {
    uint64_t &x = state().random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return bound ? (x >> 11) % bound : 0;
}

// Each thread has a time of its own: what it calls takes some, and a wait lasts until the work's end.
static uint64_t latest_host = 1000000;
static thread_local uint64_t host_now = 0;

EXPORT uint64_t fakeCudaClock() { return host_now ? host_now : latest_host; }

uint64_t host_clock(uint64_t advance) {
    if (host_now == 0) host_now = latest_host;
    host_now += advance;
    latest_host = std::max(latest_host, host_now);
    return host_now;
}

void host_clock_reaches(uint64_t time) {
    host_now = std::max(host_now, time);
    latest_host = std::max(latest_host, host_now);
}

// Only this thread's: what it called was for nothing.
void host_clock_goes_back(uint64_t by) { host_now -= by; }

NodePtr add_node(Device &device, OperationPtr operation, const std::vector<NodePtr> &dependencies) {
    auto node = std::make_shared<Node>();
    node->id = state().next_id++;
    node->device = &device;
    node->operation = std::move(operation);
    node->start = host_clock(0);
    node->correlation = current_correlation();
    for (auto &before : dependencies) {
        if (before->state == Node::Done) {
            node->start = std::max(node->start, before->end);
        } else {
            before->next.push_back(node);
            node->waits_for++;
        }
    }
    device.pending++;
    if (node->waits_for == 0) state().ready.push_back(node);
    return node;
}

CUresult enqueue(Stream &stream, OperationPtr operation, const std::vector<NodePtr> &also) {
    if (stream.capture) {
        if (stream.capture->invalid) return CAPTURE_INVALIDATED;
        capture_node(stream, std::move(operation));
        return SUCCESS;
    }
    host_clock(1500);
    std::vector<NodePtr> before = also;
    if (stream.tail) before.push_back(stream.tail);
    stream.tail = add_node(*stream.device, operation, before);
    stream.tail->stream = stream.id;
    Line("enqueue").number("node", stream.tail->id).number("stream", stream.id)
        .number("device", uint64_t(stream.device->index)).operation(*operation);
    return SUCCESS;
}

static void observe(const Node &node) {
    const Operation &op = *node.operation;
    bool is_kernel = op.kind == Operation::Kernel || op.kind == Operation::Library;
    if (!is_kernel && op.kind != Operation::Copy && op.kind != Operation::Fill) return;
    observer()->ran(is_kernel ? 0 : op.kind == Operation::Copy ? 1 : 2, op.name.c_str(), node.start, node.end,
                    uint32_t(node.device->index), uint32_t(node.stream), node.correlation, node.graph_node, op.bytes);
}

static void finish(const NodePtr &node) {
    node->state = Node::Done;
    node->device->pending--;
    if (observer()) observe(*node);
    if (node->operation->kind != Operation::Mark)
        Line("ran").number("node", node->id).string("name", node->operation->name)
            .number("device", uint64_t(node->device->index)).number("start", node->start)
            .number("end", node->end).ranges("reads", node->reads).ranges("writes", node->writes);
    for (auto &next : node->next) {
        next->start = std::max(next->start, node->end);
        if (--next->waits_for == 0) state().ready.push_back(next);
    }
    node->next.clear();
    node->operation = nullptr;
    state().progress.notify_all();
}

static void fill(const Operation &op) {
    auto *to = reinterpret_cast<uint8_t *>(op.to);
    for (uint64_t at = 0; at < op.bytes; at += op.width) memcpy(to + at, &op.value, op.width);
}

// Copies move 20 bytes a nanosecond.
static uint64_t transfer_ns(uint64_t bytes) { return 1500 + bytes / 20; }

static void execute(const NodePtr &node) {
    const Operation &op = *node->operation;
    node->reads = op.reads;
    node->writes = op.writes;
    bool real_work = op.kind != Operation::Wait && op.kind != Operation::Mark;
    if (real_work && !node->device->broken) {
        if (hangs(op.name)) {
            node->execution = HUNG;
            node->state = Node::Running;
            state().running.push_back(node);
            return;
        }
        if (CUresult code = breaks(op.name)) node->device->broken = code;
    }
    node->end = node->start;
    if (node->device->broken) return finish(node);
    switch (op.kind) {
    case Operation::Kernel: {
        CUresult code;
        if (!run_kernel(*node, code)) {
            node->execution = WAITS;
            node->state = Node::Running;
            state().running.push_back(node);
            return;
        }
        if (code) node->device->broken = code;
        break;
    }
    case Operation::Copy:
        // A copy may be of bytes that a later call has freed: the driver faults there too.
        memcpy(reinterpret_cast<void *>(op.to),
               op.staged.empty() ? reinterpret_cast<const void *>(op.from) : op.staged.data(), op.bytes);
        node->end = node->start + transfer_ns(op.bytes);
        break;
    case Operation::Fill:
        fill(op);
        node->end = node->start + transfer_ns(op.bytes);
        break;
    case Operation::Host: op.host(op.user); break;
    case Operation::Library:
        node->execution = op.work->start(op.work->user, node->start);
        node->state = Node::Running;
        state().running.push_back(node);
        return;
    case Operation::Mark: node->end = node->start + (op.name.empty() ? 0 : 1500); break;
    // What an event takes of its stream; FAKE_CUDA_EVENT_NS says it.
    case Operation::Record: node->end = node->start + setting("FAKE_CUDA_EVENT_NS", 0); break;
    case Operation::Wait: break;
    }
    finish(node);
}

static bool poll_running() {
    bool any = false;
    auto &running = state().running;
    for (size_t i = 0; i < running.size();) {
        NodePtr node = running[i];
        int done = 0;
        if (node->execution == WAITS) {
            CUresult code = SUCCESS;
            uint64_t ended = node->ended;
            done = node->device->broken || run_kernel(*node, code);
            if (code) node->device->broken = code;
            any |= node->ended != ended;
        } else if (node->execution != HUNG) {
            uint64_t end = node->start;
            done = node->operation->work->poll(node->execution, &end);
            node->end = std::max(end, node->start);
        }
        if (done == 0) {
            i++;
            continue;
        }
        if (done < 0) node->device->broken = -done;
        running.erase(running.begin() + long(i));
        finish(node);
        any = true;
    }
    return any;
}

static bool step() {
    auto &ready = state().ready;
    if (ready.empty()) return false;
    size_t at = random_below(ready.size());
    if (state().in_order)
        at = size_t(std::min_element(ready.begin(), ready.end(),
                                     [](auto &a, auto &b) { return a->id < b->id; }) - ready.begin());
    NodePtr node = ready[at];
    ready[at] = ready.back();
    ready.pop_back();
    execute(node);
    return true;
}

CUresult run_until(Call &call, Device &device, const std::function<bool()> &done) {
    while (!device.broken && !done()) {
        bool moved = poll_running();
        moved = step() || moved;
        // Other threads' work, or other processes', must come first; or something hangs.
        if (!moved) state().progress.wait_for(call.lock(), std::chrono::microseconds(200));
    }
    return device.broken;
}

void run_some() {
    poll_running();
    for (uint64_t left = random_below(256); left > 0 && step(); left--) {}
    poll_running();
}
