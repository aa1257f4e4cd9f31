// What the software device knows: contexts, streams, events, graphs, allocations and the work that
// is pending. One lock guards all of it; `Call` takes it for every call of the driver's interface.
#pragma once
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "api.h"
#include "hook.h"

struct Node;
struct Capture;
struct Event;
using NodePtr = std::shared_ptr<Node>;

// A GPU with its primary context.
struct Device {
    int index = 0;
    void *context = nullptr;
    int retained = 0;
    // An asynchronous error: every later call gives it, as the driver does.
    CUresult broken = SUCCESS;
    uint64_t used = 0;
    // Work that is not done.
    uint64_t pending = 0;
    std::shared_ptr<struct Stream> null_stream;
};

// What a node does; shared between a graph and its launches.
struct Operation {
    enum Kind { Kernel, Copy, Fill, Host, Record, Wait, Library, Mark } kind = Mark;
    std::string name;
    std::shared_ptr<struct Function> function;
    // A kernel that may begin before the one ahead of it in its stream has ended.
    bool programmatic = false;
    // Those of its stream; 0: all.
    unsigned multiprocessors = 0;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared = 0;
    std::vector<std::vector<uint8_t>> arguments;
    // Copy and Fill: `staged` is what a copy from pageable memory has already read.
    uint64_t to = 0, from = 0, bytes = 0;
    uint32_t value = 0, width = 1;
    std::vector<uint8_t> staged;
    CUhostFn host = nullptr;
    void *user = nullptr;
    std::shared_ptr<Event> event;
    std::shared_ptr<FakeWork> work;
    std::vector<FakeRange> reads, writes;
};
using OperationPtr = std::shared_ptr<const Operation>;

// Work on a device: runs once everything it depends on is done.
struct Node {
    uint64_t id = 0;
    Device *device = nullptr;
    OperationPtr operation;
    std::vector<NodePtr> next;
    size_t waits_for = 0;
    enum State { Pending, Running, Done } state = Pending;
    void *execution = nullptr;
    // ns of the virtual clock. `start` holds the latest end among dependencies until it runs;
    // `spent` is what a kernel waited on the clock.
    uint64_t start = 0, end = 0, spent = 0;
    // Of a kernel that waits for kernels of other devices: the order of its threads, which blocks have ended, when it
    // arrived, and whom it has met.
    uint64_t order = 0, ended = 0, arrived = 0, met = 0;
    // The call that enqueued it, its stream, and its node in an executable graph.
    uint32_t correlation = 0;
    uint64_t stream = 0, graph_node = 0;
    // What it touched, once it has run.
    std::vector<FakeRange> reads, writes;
};

struct Stream {
    uint64_t id = 0;
    Device *device = nullptr;
    int priority = 0;
    unsigned flags = 0;
    // Those of its green context; 0: all.
    unsigned multiprocessors = 0;
    NodePtr tail;
    // While capturing: the nodes of the capture's graph that the next one depends on.
    std::shared_ptr<Capture> capture;
    std::vector<size_t> leaves;
};

struct Event {
    uint64_t id = 0;
    unsigned flags = 0;
    NodePtr recorded;
    // A record in a capture is an edge, not a time.
    std::shared_ptr<Capture> capture;
    std::vector<size_t> leaves;
};

struct GraphNode {
    void *handle = nullptr;
    OperationPtr operation;
    std::vector<size_t> depends_on;
};

struct Graph {
    uint64_t id = 0;
    Device *device = nullptr;
    std::vector<GraphNode> nodes;
};

struct GraphExec {
    uint64_t id = 0;
    Device *device = nullptr;
    std::vector<GraphNode> nodes;
    // Numbers of the nodes for a profiler.
    std::vector<uint64_t> clones;
    // A graph never runs beside itself.
    NodePtr last;
};

struct Capture {
    std::shared_ptr<Graph> graph;
    std::shared_ptr<Stream> origin;
    std::vector<std::weak_ptr<Stream>> streams;
    int mode = CAPTURE_GLOBAL;
    std::thread::id thread;
    bool invalid = false;
    bool ended = false;
};

struct Module {
    uint64_t id = 0;
    Device *device = nullptr;
    void *library = nullptr;
    int file = -1;
    void (*set_clock)(unsigned long long (*)(void *), void (*)(void *, unsigned), void *) = nullptr;
    void (*set_order)(unsigned long long) = nullptr;
    const char *(*error)() = nullptr;
    unsigned long long (*ended_blocks)(unsigned long long) = nullptr;
    // Its kernels say when they ran, at the address that is their last argument.
    bool stamped = false;
    ~Module();
};

struct Function {
    std::string name;
    std::shared_ptr<Module> module;
    int (*call)(const unsigned *, const unsigned *, unsigned, void **) = nullptr;
    const unsigned *sizes = nullptr;
    unsigned dynamic_shared = 48 * 1024;
};

// Device memory (or page-locked host memory) with pages behind and before it that nobody may touch.
struct Allocation {
    Device *device = nullptr;
    uint64_t address = 0, bytes = 0;
    uint64_t mapping = 0, mapped = 0;
    bool host = false;
};

// Handles of one kind. Numbers are never used again, so a stale handle is told from a live one.
template <class T> class Handles {
    std::unordered_map<void *, std::shared_ptr<T>> live;

  public:
    void *add(uint64_t id, std::shared_ptr<T> object) {
        void *handle = reinterpret_cast<void *>(0x0fa4e00000000000ull + id * 16);
        live[handle] = std::move(object);
        return handle;
    }
    std::shared_ptr<T> get(void *handle) const {
        auto found = live.find(handle);
        return found == live.end() ? nullptr : found->second;
    }
    bool remove(void *handle) { return live.erase(handle) != 0; }
    const std::unordered_map<void *, std::shared_ptr<T>> &all() const { return live; }
};

struct State {
    std::mutex lock;
    std::condition_variable progress;
    bool initialized = false;
    uint64_t next_id = 1;
    std::vector<std::unique_ptr<Device>> devices;
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Graph> graphs;
    Handles<GraphExec> execs;
    Handles<Module> modules;
    Handles<Function> functions;
    // Nodes of graphs: the graph and the number in it.
    std::unordered_map<void *, std::pair<std::weak_ptr<Graph>, size_t>> graph_nodes;
    std::map<uint64_t, Allocation> allocations;
    std::vector<std::shared_ptr<Capture>> captures;
    std::vector<NodePtr> ready, running;
    std::vector<std::pair<int, int>> peers;
    uint64_t random = 0;
    bool in_order = false;
};

// Never destroyed: the process may end while threads still call.
State &state();

// The settings of the software device, from variables.
uint64_t setting(const char *variable, uint64_t fallback);

// One call of the interface: lock, injected faults, initialisation and the sticky error.
class Call {
    const char *function;
    uint64_t entered = 0;
    uint32_t correlation = 0;
    std::unique_lock<std::mutex> held;
    CUresult refusal = SUCCESS;

  public:
    enum Needs { Nothing, Init, Context };
    Call(const char *function, Needs needs);
    ~Call();
    CUresult refused() const { return refusal; }
    // Notes an answer that is not success in the log and gives it back.
    CUresult answer(CUresult code) const;
    // That what was asked for has not ended. It takes no time of the virtual clock: how often a thread must ask
    // depends on how fast other processes run here, and ranks whose clocks differ would wait for each other.
    CUresult not_ready() const;
    // Refuses what may not happen while something captures, and spoils the capture.
    CUresult unsafe_in_capture();
    std::unique_lock<std::mutex> &lock() { return held; }
    // The device of the current context.
    Device *device() const;
};
#define ENTER(name, needs)                                                                              \
    Call call(#name, Call::needs);                                                                      \
    if (CUresult refusal = call.refused()) return refusal
#define REFUSE_IN_CAPTURE()                                                                             \
    if (CUresult refusal = call.unsafe_in_capture()) return call.answer(refusal)

// devices.cpp
Device *&current_device();
// streams.cpp; null for a wrong handle. A null handle is the context's own stream.
std::shared_ptr<Stream> stream_of(const Call &call, CUstream handle);
// memory.cpp
bool device_holds(uint64_t address, uint64_t bytes);
bool pinned(uint64_t address, uint64_t bytes);
std::string describe_address(uint64_t address);
void release_allocation(Allocation &allocation);
// Null where all is well, else which bytes around it were overwritten.
std::string damage(const Allocation &allocation);

// schedule.cpp: all with the lock held.
// Appends work to a stream, into the capture where there is one.
CUresult enqueue(Stream &stream, OperationPtr operation, const std::vector<NodePtr> &also = {});
NodePtr add_node(Device &device, OperationPtr operation, const std::vector<NodePtr> &dependencies);
// Runs pending work in an order that its dependencies allow until `done` holds.
CUresult run_until(Call &call, Device &device, const std::function<bool()> &done);
// Runs a random part of what can run now; for queries.
void run_some();
// Who is told of calls and work; null for nobody. The correlation is that of the call under way on this thread.
const FakeObserver *observer();
uint32_t &current_correlation();
uint64_t random_below(uint64_t bound);
uint64_t host_clock(uint64_t advance);
void host_clock_reaches(uint64_t time);
void host_clock_goes_back(uint64_t by);
// run_kernel.cpp: runs a kernel now; an error breaks the context. False: it waits for a kernel of another device, and is to
// be run again.
bool run_kernel(Node &node, CUresult &code);
// trace.cpp: which device memory the kernel between the two touches, where it was compiled to tell.
void trace_begin();
void trace_end(std::vector<FakeRange> &reads, std::vector<FakeRange> &writes);
// capture.cpp
size_t capture_node(Stream &stream, OperationPtr operation);
NodePtr launch_graph(Stream &stream, GraphExec &exec);

// faults.cpp: what a test asked to go wrong.
CUresult injected_failure(const char *function);
// The argument at which a kernel's result is to be spoilt; -1: none.
int spoils(const std::string &name);
bool hangs(const std::string &name);
CUresult breaks(const std::string &name);

// log.cpp: one JSON object a line, `{"call":"...", ...}`; nothing where no log is asked for.
class Line {
    std::string text;
    bool on;

  public:
    explicit Line(const char *call);
    ~Line();
    Line &number(const char *key, uint64_t value);
    Line &string(const char *key, const std::string &value);
    Line &address(const char *key, uint64_t value);
    Line &numbers(const char *key, const unsigned *values, size_t count);
    Line &list(const char *key, const std::vector<size_t> &values);
    Line &ranges(const char *key, const std::vector<FakeRange> &ranges);
    Line &operation(const Operation &operation);
};
