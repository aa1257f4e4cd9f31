// Runs a kernel on this CPU, a call of its shared object. Touching memory that is not the device's is
// caught and breaks the context as on a GPU.
#include "state.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstring>

// The node whose kernel runs: one at a time, under the lock.
static Node *current = nullptr;
static sigjmp_buf escape;
static volatile sig_atomic_t guarded = 0;
static void *volatile fault_address = nullptr;
static struct sigaction before_us[2];

static unsigned long long kernel_clock(void *) {
    current->spent += 8;
    static const uint64_t tick = setting("FAKE_CUDA_TICK_NS", 1);
    return (current->start + current->spent) / tick * tick;
}
static void kernel_sleep(void *, unsigned ns) { current->spent += ns; }

static void on_fault(int signal, siginfo_t *info, void *context) {
    if (guarded && current) {
        fault_address = info->si_addr;
        guarded = 0;
        siglongjmp(escape, 1);
    }
    // Not a kernel's: as if this handler were not here.
    const struct sigaction &other = before_us[signal == SIGBUS];
    if (other.sa_flags & SA_SIGINFO) return other.sa_sigaction(signal, info, context);
    sigaction(signal, &other, nullptr);
}

static void catch_faults() {
    static bool once = false;
    if (once) return;
    once = true;
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &ours, &before_us[0]);
    sigaction(SIGBUS, &ours, &before_us[1]);
}

// Memory of another device is reached where that was asked for.
static bool may_touch(const Node &node, uint64_t address) {
    auto &all = state().allocations;
    auto after = all.upper_bound(address);
    if (after == all.begin()) return true;
    const Allocation &found = std::prev(after)->second;
    if (found.host || found.device == node.device || address >= found.address + found.bytes) return true;
    for (auto &pair : state().peers)
        if (pair == std::make_pair(node.device->index, found.device->index)) return true;
    return false;
}

// Kernels of one name that wait for one another begin, as far as they can tell, when the last of them arrives.
static void meet(Node &node) {
    if (node.arrived) return;
    node.arrived = node.start;
    for (auto &other : state().running) {
        uint64_t bit = 1ull << node.device->index;
        if (!other->arrived || other->device == node.device || other->met & bit ||
            other->operation->name != node.operation->name)
            continue;
        other->met |= bit;
        other->start = std::max(other->start, node.arrived);
        node.start = std::max(node.start, other->arrived);
    }
}

bool run_kernel(Node &node, CUresult &code) {
    code = SUCCESS;
    const Operation &op = *node.operation;
    const Module &module = *op.function->module;
    std::vector<void *> arguments;
    for (auto &bytes : op.arguments) arguments.push_back(const_cast<uint8_t *>(bytes.data()));
    module.set_clock(kernel_clock, kernel_sleep, nullptr);
    if (!node.arrived) {
        node.order = state().in_order ? 0 : random_below(1u << 30) + 1;
        // A launch takes its time after what comes before it, but where it may begin early.
        if (!op.programmatic) node.start += setting("FAKE_CUDA_LAUNCH_NS", 0);
    }
    module.set_order(node.order);
    module.ended_blocks(node.ended);
    catch_faults();
    // A region that kernels of all devices share is their first argument, and tells where those of the others lie.
    if (op.name.rfind("one_shot_", 0) == 0) {
        uint64_t region, peer;
        memcpy(&region, op.arguments.at(0).data(), sizeof region);
        for (size_t i = 0; i < state().devices.size(); i++) {
            memcpy(&peer, reinterpret_cast<uint8_t *>(region) + 8 * i, sizeof peer);
            if (peer && !may_touch(node, peer)) {
                fprintf(stderr, "software CUDA device: kernel %s reaches memory of another device, which was not enabled\n",
                        op.name.c_str());
                code = ILLEGAL_ADDRESS;
                return true;
            }
        }
    }
    current = &node;
    trace_begin();
    int failed = 0;
    if (sigsetjmp(escape, 1) == 0) {
        guarded = 1;
        failed = op.function->call(op.grid, op.block, op.shared, arguments.data());
        guarded = 0;
    } else {
        fprintf(stderr, "software CUDA device: kernel %s touched %s\n", op.name.c_str(),
                describe_address(reinterpret_cast<uint64_t>(fault_address)).c_str());
        code = ILLEGAL_ADDRESS;
        return true;
    }
    trace_end(node.reads, node.writes);
    if (failed == 2) {
        node.ended = module.ended_blocks(0);
        meet(node);
        return false;
    }
    if (node.arrived || failed == 0) meet(node);
    if (failed) {
        fprintf(stderr, "software CUDA device: kernel %s: %s\n", op.name.c_str(), module.error());
        code = LAUNCH_FAILED;
        return true;
    }
    if (int at = spoils(op.name); at >= 0) {
        uint64_t address;
        memcpy(&address, op.arguments.at(size_t(at)).data(), sizeof address);
        *reinterpret_cast<uint32_t *>(address) ^= 1;
    }
    // 2 us and another for every wave of blocks, 0.1 us where one thread does it all; a kernel that waited on the clock
    // takes that long.
    uint64_t blocks = uint64_t(op.grid[0]) * op.grid[1] * op.grid[2];
    uint64_t threads = uint64_t(op.block[0]) * op.block[1] * op.block[2];
    uint64_t multiprocessors = op.multiprocessors ? op.multiprocessors : setting("FAKE_CUDA_MULTIPROCESSORS", 4);
    uint64_t at_once = multiprocessors * (2048 / threads);
    uint64_t waves = blocks * threads == 1 ? 100 : 2000 + 1000 * ((blocks + at_once - 1) / at_once);
    node.end = node.start + std::max<uint64_t>(waves, node.spent);
    if (module.stamped) {
        // What the last block would have said, had it run when it did.
        uint64_t at;
        memcpy(&at, op.arguments.back().data(), sizeof at);
        auto *stamps = reinterpret_cast<uint64_t *>(at);
        stamps[1] = std::max(stamps[1], node.end);
    }
    return true;
}
