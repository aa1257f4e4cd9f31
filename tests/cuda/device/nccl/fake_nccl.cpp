// libnccl.so.2 for tests: all-reduces, reduce-scatters and all-gathers on streams of the software device, communicators that block or
// do not, and what can go wrong with them. Profilers are told as NCCL of this version tells them (profiled.h). Names and numbers are those of NVIDIA's documentation of NCCL.
//   FAKE_NCCL_FOLDER        where ranks meet (/dev/shm)
//   FAKE_NCCL_VERSION       22703
//   FAKE_NCCL_ABSENT=r      rank r never joins
//   FAKE_NCCL_INIT=code     the initialisation answers this
//   FAKE_NCCL_HANG=r:n      the n-th sum of rank r never arrives
//   FAKE_NCCL_ASYNC=r:n=c   from the n-th sum of rank r on its communicator has the asynchronous error c
//   FAKE_NCCL_SPOIL=r:n=c   rank r gets another n-th sum: negative numbers, or with c = 1 no numbers
//   FAKE_NCCL_LAZY=n        the first sum takes n bytes of the GPU's memory more
//   FAKE_NCCL_WAIT=r:n      the n-th sum of rank r is not enqueued before the communicator is aborted: a peer is dead
//   FAKE_NCCL_NVLS=1        there is a switch that sums
//   FAKE_NCCL_MOST          most numbers of a sum (1048576)
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "../driver/client.h"
#include "../floats.h"
#include "debug.h"
#include "group.h"
#include "profiled.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
enum Result { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE, IN_PROGRESS };
enum Type { BYTE = 1, F16 = 6, F32 = 7, BF16 = 9 };
// What the ranks do together: of a sum each gets all, or its share; or each gets what all give.
enum Kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER };

struct UniqueId {
    char bytes[128];
};

// ncclConfig_t up to the fields that 2.18 has.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};
constexpr unsigned CONFIG_MAGIC = 0xcafebeef;
constexpr int UNDEFINED = INT32_MIN;

// rank:n=code, or rank:n, or rank
struct Fault {
    int rank = -1, code = 0;
    uint64_t at = 0;
    explicit Fault(const char *variable) {
        const char *text = getenv(variable);
        unsigned long long n = 0;
        if (text) sscanf(text, "%d:%llu=%d", &rank, &n, &code);
        at = n;
    }
};

struct Communicator {
    std::unique_ptr<Group> group;
    int rank = 0, ranks = 1, device = 0;
    bool absent = false, first = true;
    std::atomic<bool> aborted{false};
    std::atomic<int> error{SUCCESS};
    // Calls of GetAsyncError that still answer "in progress".
    std::atomic<int> progress{2};
    uint64_t executed = 0, enqueued = 0;
    bool blocking = true;
    std::string last;
    Debug debug;
    uint64_t hash = 0, sequence = 0;
    void *profiler = nullptr;
};
using Comm = std::shared_ptr<Communicator>;

std::mutex lock;
std::set<std::pair<void *, Comm>> live;
thread_local std::string last_error;

Comm get(void *handle) {
    std::lock_guard<std::mutex> held(lock);
    for (auto &[own, comm] : live)
        if (own == handle) return comm;
    return nullptr;
}

int fail(int code, const std::string &why) {
    last_error = why;
    return code;
}

bool all_joined(Communicator &comm) {
    return comm.group->meeting().joined.load() == (1u << comm.ranks) - 1;
}

int version_code() {
    const char *set = getenv("FAKE_NCCL_VERSION");
    return set ? atoi(set) : 22703;
}

Profilers &profilers() {
    static Profilers *the = new Profilers(version_code());
    return *the;
}

// Two ranks on one device are refused, from NCCL 2.30 on unless they are permitted.
void look_for_doubles(Communicator &comm) {
    const char *permitted = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (version_code() >= 23000 && permitted && strcmp(permitted, "1") == 0) return;
    Meeting &meeting = comm.group->meeting();
    for (int other = 0; other < comm.ranks; other++) {
        if (other == comm.rank || !(meeting.joined.load() >> other & 1)) continue;
        if (meeting.device[other] != comm.device) continue;
        char text[160];
        snprintf(text, sizeof text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x000",
                 comm.rank, other, comm.device + 1);
        comm.last = text;
        comm.error = INVALID_USAGE;
        comm.debug.warn(text);
    }
}

// `count`: the numbers of a sum, of a share of one, or of what a rank gives to a gather.
struct Sum {
    Comm comm;
    uint64_t send, receive, count;
    int type;
    Kind kind;
    uint64_t given() const { return count * (kind == REDUCE_SCATTER ? comm->ranks : 1); }
    uint64_t got() const { return count * (kind == ALL_GATHER ? comm->ranks : 1); }
};

uint64_t width(int type) { return type == BYTE ? 1 : type == F32 ? 4 : 2; }

struct Byte {
    uint8_t bits;
    operator float() const { return bits; }
    static Byte of(float x) { return {uint8_t(x)}; }
};

template <class N> void put(float *to, uint64_t from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) to[i] = float(reinterpret_cast<const N *>(from)[i]);
}
template <class N> void take(Group &group, int slot, const Sum &sum) {
    auto *to = reinterpret_cast<N *>(sum.receive);
    uint64_t first = sum.kind == REDUCE_SCATTER ? sum.count * sum.comm->rank : 0;
    for (uint64_t i = 0; i < sum.got(); i++) {
        if (sum.kind == ALL_GATHER) {
            to[i] = N::of(group.numbers(slot, int(i / sum.count))[i % sum.count]);
            continue;
        }
        float all = group.numbers(slot, 0)[first + i];
        for (int rank = 1; rank < sum.comm->ranks; rank++) all += group.numbers(slot, rank)[first + i];
        to[i] = N::of(all);
    }
}

// One rank's part of one execution of a sum.
struct Execution {
    Sum sum;
    uint64_t number, now;
    bool hung = false, arrived = false;
    int spoilt = -1;

    int slot() const { return int(number % SLOTS); }

    void arrive() {
        Group &group = *sum.comm->group;
        Slot &at = group.meeting().slots[slot()];
        float *to = group.numbers(slot(), sum.comm->rank);
        if (sum.type == F32) put<floats::F32>(to, sum.send, sum.given());
        else if (sum.type == BF16) put<floats::Bf16>(to, sum.send, sum.given());
        else if (sum.type == F16) put<floats::F16>(to, sum.send, sum.given());
        else put<Byte>(to, sum.send, sum.given());
        at.count[sum.comm->rank] = sum.count;
        at.type[sum.comm->rank] = sum.type + 16 * sum.kind;
        uint64_t latest = at.latest.load();
        while (latest < now && !at.latest.compare_exchange_weak(latest, now)) {}
        at.arrived++;
        arrived = true;
    }

    // Ranks that sum different things would wait for each other for ever.
    bool agreed() {
        Slot &at = sum.comm->group->meeting().slots[slot()];
        for (int rank = 0; rank < sum.comm->ranks; rank++)
            if (at.count[rank] != sum.count || at.type[rank] != sum.type + 16 * sum.kind) return false;
        return true;
    }

    void leave() {
        Communicator &comm = *sum.comm;
        Slot &at = comm.group->meeting().slots[slot()];
        if (sum.type == F32) take<floats::F32>(*comm.group, slot(), sum);
        else if (sum.type == BF16) take<floats::Bf16>(*comm.group, slot(), sum);
        else if (sum.type == F16) take<floats::F16>(*comm.group, slot(), sum);
        else take<Byte>(*comm.group, slot(), sum);
        auto *bytes = reinterpret_cast<uint8_t *>(sum.receive);
        for (uint64_t at = 0, each = width(sum.type); spoilt >= 0 && at < sum.got(); at++) {
            if (spoilt == 0) bytes[at * each + each - 1] ^= 0x80;
            else memset(bytes + at * each, 0xff, each);
        }
        if (++at.left == uint32_t(comm.ranks)) {
            at.arrived = 0;
            at.left = 0;
            at.latest = 0;
            at.round++;
        }
    }

    bool done(uint64_t *end) {
        Communicator &comm = *sum.comm;
        *end = now;
        if (comm.aborted) return true;
        if (hung || comm.error != SUCCESS) return false;
        Slot &at = comm.group->meeting().slots[slot()];
        if (!arrived && at.round.load() != number / SLOTS) return false;
        if (!arrived) arrive();
        if (at.arrived.load() != uint32_t(comm.ranks)) return false;
        if (!agreed()) {
            fprintf(stderr, "software NCCL: ranks sum different numbers at their sum %llu\n",
                    (unsigned long long)number);
            hung = true;
            return false;
        }
        // 5 us, or 20 through the host's memory, and 0.01 ns a byte.
        const char *off = getenv("NCCL_P2P_DISABLE");
        uint64_t alpha = off && *off == '1' ? 20000 : 5000;
        *end = at.latest.load() + alpha + sum.count * width(sum.type) / 100;
        leave();
        return true;
    }
};

void *begin(void *user, uint64_t now) {
    static const Fault hang("FAKE_NCCL_HANG"), async("FAKE_NCCL_ASYNC"), spoil("FAKE_NCCL_SPOIL");
    auto *sum = static_cast<Sum *>(user);
    Communicator &comm = *sum->comm;
    auto *execution = new Execution{*sum, comm.executed++, now};
    execution->hung = hang.rank == comm.rank && comm.executed == hang.at;
    if (spoil.rank == comm.rank && comm.executed == spoil.at) execution->spoilt = spoil.code;
    if (async.rank == comm.rank && comm.executed == async.at) {
        comm.last = "NET/Socket : peer has reset the connection";
        comm.error = async.code;
    }
    return execution;
}
} // namespace

EXPORT int ncclGetVersion(int *version) {
    *version = version_code();
    return SUCCESS;
}

EXPORT const char *ncclGetErrorString(int code) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code >= 0 && code <= IN_PROGRESS ? texts[code] : "unknown result code";
}

EXPORT const char *ncclGetLastError(void *handle) {
    Comm comm = get(handle);
    if (comm && !comm->last.empty()) last_error = comm->last;
    return last_error.c_str();
}

EXPORT int ncclGetUniqueId(UniqueId *id) {
    if (!id) return fail(INVALID_ARGUMENT, "uniqueId is null");
    memset(id->bytes, 0, sizeof id->bytes);
    std::random_device random;
    snprintf(id->bytes, sizeof id->bytes, "fake-nccl-%d-%08x%08x", getpid(), random(), random());
    return SUCCESS;
}

EXPORT int ncclCommInitRankConfig(void **out, int ranks, UniqueId id, int rank, const Config *config) {
    if (!out) return fail(INVALID_ARGUMENT, "comm is null");
    *out = nullptr;
    if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks)
        return fail(INVALID_ARGUMENT, "Invalid rank requested");
    if (strncmp(id.bytes, "fake-nccl-", 10) != 0 || !memchr(id.bytes, 0, sizeof id.bytes))
        return fail(INVALID_ARGUMENT, "the unique id is none of this library's");
    if (config && (config->magic != CONFIG_MAGIC || config->size < sizeof(Config)))
        return fail(INVALID_ARGUMENT, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    fake::Driver driver = fake::driver();
    if (!driver || driver.device() < 0) return fail(CUDA_ERROR, "Cuda failure 'invalid device context'");
    if (const char *code = getenv("FAKE_NCCL_INIT")) return fail(atoi(code), "the initialisation was told to fail");

    auto comm = std::make_shared<Communicator>();
    const char *folder = getenv("FAKE_NCCL_FOLDER"), *most = getenv("FAKE_NCCL_MOST");
    std::string path = std::string(folder ? folder : "/dev/shm") + "/" + id.bytes;
    comm->group = std::make_unique<Group>(path, ranks, most ? strtoull(most, nullptr, 10) : 1 << 20);
    if (!comm->group->good()) return fail(SYSTEM_ERROR, path + ": " + strerror(errno));
    comm->rank = rank;
    comm->ranks = ranks;
    comm->device = driver.device();
    static const Fault absent("FAKE_NCCL_ABSENT");
    comm->absent = absent.rank == rank;
    comm->debug.joins(rank, ranks);
    if (!comm->absent) {
        Meeting &meeting = comm->group->meeting();
        meeting.device[rank] = comm->device;
        meeting.process[rank] = getpid();
        if (meeting.joined.fetch_or(1u << rank) >> rank & 1)
            return fail(INVALID_USAGE, "this rank has joined before");
    }
    {
        std::lock_guard<std::mutex> held(lock);
        live.insert({comm.get(), comm});
    }
    *out = comm.get();
    // as NCCL's: equal on all ranks, any 64 bits
    comm->hash = 0xcbf29ce484222325;
    for (const char *at = id.bytes; *at; at++) comm->hash = (comm->hash ^ uint64_t(uint8_t(*at))) * 0x100000001b3;
    comm->profiler = profilers().joined(comm->hash, ranks, rank, comm->device);
    bool blocking = comm->blocking = !config || config->blocking == 1 || config->blocking == UNDEFINED;
    if (blocking) comm->progress = 0;
    while (blocking && (comm->absent || !all_joined(*comm))) usleep(100);
    if (blocking) look_for_doubles(*comm);
    return blocking ? comm->error.load() : IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(void *handle, int *out) {
    Comm comm = get(handle);
    if (!comm || !out) return fail(INVALID_ARGUMENT, "no such communicator");
    if (!comm->absent && all_joined(*comm)) look_for_doubles(*comm);
    if (comm->error != SUCCESS) *out = comm->error;
    else if (comm->absent || !all_joined(*comm)) *out = IN_PROGRESS;
    else *out = comm->progress > 0 && comm->progress-- > 0 ? IN_PROGRESS : SUCCESS;
    if (*out == SUCCESS && comm->rank == 0) comm->group->unname();
    return SUCCESS;
}

static int enqueue(Kind kind, const void *send, void *receive, size_t count, int type, void *handle, void *stream) {
    Comm comm = get(handle);
    if (!comm) return fail(INVALID_ARGUMENT, "no such communicator");
    if (comm->error != SUCCESS) return fail(comm->error, comm->last);
    if (!all_joined(*comm)) return fail(INVALID_USAGE, "the communicator is not ready");
    if (type != F16 && type != F32 && type != BF16 && (type != BYTE || kind != ALL_GATHER))
        return fail(INVALID_ARGUMENT, "only sums of float16, float32 and bfloat16 are offered");
    fake::Driver driver = fake::driver();
    auto from = reinterpret_cast<uint64_t>(send), to = reinterpret_cast<uint64_t>(receive);
    Sum sum{comm, from, to, count, type, kind};
    uint64_t sent = sum.given() * width(type), received = sum.got() * width(type);
    uint64_t bytes = sent > received ? sent : received;
    if (!driver || !driver.holds(from, sent) || !driver.holds(to, received))
        return fail(INVALID_ARGUMENT, "AllReduce : the buffers are not in a GPU's memory");
    if (driver.device() != comm->device)
        return fail(INVALID_USAGE, "the communicator is of another device than the current one");
    if (sum.given() > comm->group->most_numbers())
        return fail(INVALID_ARGUMENT, "more numbers than FAKE_NCCL_MOST");
    comm->debug.sums(bytes);
    static const Fault wait("FAKE_NCCL_WAIT");
    if (wait.rank == comm->rank && ++comm->enqueued == wait.at) {
        while (!comm->aborted) usleep(1000);
        return fail(INTERNAL, "the communicator was aborted");
    }
    if (comm->first)
        if (const char *lazy = getenv("FAKE_NCCL_LAZY"); lazy && driver.take(strtoull(lazy, nullptr, 10)) != 0)
            return fail(CUDA_ERROR, "Cuda failure 2 'out of memory'");
    FakeWork work = {};
    static const struct {
        const char *kernel, *function;
        uint8_t number;
    } kinds[] = {{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "AllReduce", 4},
                 {"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "ReduceScatter", 3},
                 {"ncclDevKernel_AllGather_RING_LL", "AllGather", 2}};
    work.name = kinds[kind].kernel;
    work.user = new Sum(sum);
    work.start = begin;
    work.poll = [](void *given, uint64_t *end) {
        auto *execution = static_cast<Execution *>(given);
        if (!execution->done(end)) return 0;
        delete execution;
        return 1;
    };
    work.release = [](void *user) { delete static_cast<Sum *>(user); };
    FakeRange read = {from, sent}, written = {to, received};
    work.reads = &read;
    work.read_count = 1;
    work.writes = &written;
    work.write_count = 1;
    const char *datatype = type == BYTE ? "ncclUint8" : type == F16 ? "ncclFloat16" : type == F32 ? "ncclFloat32" : "ncclBfloat16";
    // a message is what one rank gives to a gather, or gets of a scattered sum
    Told told{kinds[kind].function, datatype, count, count * width(type), kinds[kind].number, comm->hash, comm->sequence++,
              comm->rank, comm->profiler};
    profilers().calls(told);
    int code = driver.enqueue(stream, &work);
    profilers().launched(told);
    if (code) return fail(CUDA_ERROR, "Cuda failure " + std::to_string(code));
    // The first of its kind connects ranks in the background.
    if (comm->first) comm->progress = 1;
    bool first = std::exchange(comm->first, false);
    return first && !comm->blocking ? IN_PROGRESS : SUCCESS;
}

EXPORT int ncclAllReduce(const void *send, void *receive, size_t count, int type, int operation, void *handle,
                         void *stream) {
    if (operation != 0) return fail(INVALID_ARGUMENT, "only sums are offered");
    return enqueue(ALL_REDUCE, send, receive, count, type, handle, stream);
}
EXPORT int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int operation, void *handle,
                             void *stream) {
    if (operation != 0) return fail(INVALID_ARGUMENT, "only sums are offered");
    return enqueue(REDUCE_SCATTER, send, receive, count, type, handle, stream);
}
EXPORT int ncclAllGather(const void *send, void *receive, size_t count, int type, void *handle, void *stream) {
    return enqueue(ALL_GATHER, send, receive, count, type, handle, stream);
}

EXPORT int ncclCommCount(void *handle, int *out) {
    Comm comm = get(handle);
    if (!comm) return fail(INVALID_ARGUMENT, "no such communicator");
    *out = comm->ranks;
    return SUCCESS;
}
EXPORT int ncclCommUserRank(void *handle, int *out) {
    Comm comm = get(handle);
    if (!comm) return fail(INVALID_ARGUMENT, "no such communicator");
    *out = comm->rank;
    return SUCCESS;
}
EXPORT int ncclCommCuDevice(void *handle, int *out) {
    Comm comm = get(handle);
    if (!comm) return fail(INVALID_ARGUMENT, "no such communicator");
    *out = comm->device;
    return SUCCESS;
}

static int forget(void *handle) {
    if (Comm comm = get(handle)) profilers().left(std::exchange(comm->profiler, nullptr));
    std::lock_guard<std::mutex> held(lock);
    for (auto at = live.begin(); at != live.end(); ++at)
        if (at->first == handle) return live.erase(at), SUCCESS;
    return fail(INVALID_ARGUMENT, "no such communicator");
}

EXPORT int ncclCommFinalize(void *handle) {
    Comm comm = get(handle);
    if (!comm) return fail(INVALID_ARGUMENT, "no such communicator");
    if (!comm->blocking) comm->progress = 1;
    return comm->blocking ? SUCCESS : IN_PROGRESS;
}
EXPORT int ncclCommDestroy(void *handle) { return forget(handle); }
EXPORT int ncclCommAbort(void *handle) {
    Comm comm = get(handle);
    if (!comm) return fail(INVALID_ARGUMENT, "no such communicator");
    // What is under way ends, without a result.
    comm->aborted = true;
    if (!all_joined(*comm)) comm->group->unname();
    return forget(handle);
}
