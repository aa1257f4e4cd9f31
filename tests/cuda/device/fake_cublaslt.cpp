// libcublasLt.so.13 for tests: matrix products in f32, f16 and bf16 with sums in f32, on streams of the
// software device. Names and numbers are those of NVIDIA's documentation of cuBLASLt.
//   FAKE_CUBLASLT_FAIL=n   the n-th product answers CUBLAS_STATUS_EXECUTION_FAILED
//   FAKE_CUBLASLT_NONE=1   the heuristic knows no algorithm
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "driver/client.h"
#include "floats.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type { F32 = 0, F16 = 2, BF16 = 14 };
enum { COMPUTE_32F = 68 };
enum { N = 0, T = 1 };

// What every description begins with: wrong handles are told from right ones.
struct Object {
    virtual ~Object() = default;
};
struct Handle : Object {};
struct Description : Object {
    int compute = 0, scale = 0, pointer_mode = 0, transpose[3] = {N, N, N}, epilogue = 1, sm_target = 0;
};
struct Layout : Object {
    int type = 0, order = 0, batch = 1;
    uint64_t rows = 0, columns = 0;
    int64_t leading = 0;
};
struct Preference : Object {
    uint64_t workspace = 0;
};

std::mutex lock;
std::set<Object *> live;

template <class O> int create(void **out, std::unique_ptr<O> object) {
    if (!out) return INVALID_VALUE;
    std::lock_guard<std::mutex> held(lock);
    live.insert(object.get());
    *out = static_cast<Object *>(object.release());
    return SUCCESS;
}

template <class O> O *get(const void *handle) {
    std::lock_guard<std::mutex> held(lock);
    auto *object = const_cast<Object *>(static_cast<const Object *>(handle));
    return live.count(object) ? dynamic_cast<O *>(object) : nullptr;
}

template <class O> int destroy(void *handle) {
    O *object = get<O>(handle);
    if (!object) return INVALID_VALUE;
    std::lock_guard<std::mutex> held(lock);
    live.erase(object);
    delete object;
    return SUCCESS;
}

template <class V> int set(V &value, const void *from, size_t bytes) {
    if (!from || bytes != sizeof value) return INVALID_VALUE;
    memcpy(&value, from, bytes);
    return SUCCESS;
}

uint64_t width(int type) { return type == F32 ? 4 : 2; }

struct Matrix {
    uint64_t address = 0;
    Layout layout;
    uint64_t bytes() const {
        return (uint64_t(layout.leading) * (layout.columns - 1) + layout.rows) * width(layout.type);
    }
};

struct Product {
    Matrix a, b, c, d;
    bool transpose_a, transpose_b;
    uint64_t m, n, k;
    float alpha, beta;
    uint64_t workspace = 0, workspace_bytes = 0;

    template <class In, class Out> void run() const {
        auto *x = reinterpret_cast<const In *>(a.address);
        auto *y = reinterpret_cast<const In *>(b.address);
        auto *from = reinterpret_cast<const Out *>(c.address);
        auto *to = reinterpret_cast<Out *>(d.address);
        std::vector<float> row(k);
        for (uint64_t i = 0; i < m; i++) {
            for (uint64_t l = 0; l < k; l++)
                row[l] = float(x[transpose_a ? i * a.layout.leading + l : l * a.layout.leading + i]);
            for (uint64_t j = 0; j < n; j++) {
                float sum = 0;
                for (uint64_t l = 0; l < k; l++)
                    sum += row[l] * float(y[transpose_b ? l * b.layout.leading + j : j * b.layout.leading + l]);
                sum *= alpha;
                if (beta != 0) sum += beta * float(from[j * c.layout.leading + i]);
                to[j * d.layout.leading + i] = Out::of(sum);
            }
        }
    }

    void run() const {
        // Two products that share a workspace at a time destroy each other's: so does this one.
        memset(reinterpret_cast<void *>(workspace), 0xff, workspace_bytes);
        int in = a.layout.type, out = d.layout.type;
        if (in == F32) run<floats::F32, floats::F32>();
        else if (in == BF16 && out == BF16) run<floats::Bf16, floats::Bf16>();
        else if (in == BF16) run<floats::Bf16, floats::F32>();
        else if (out == F16) run<floats::F16, floats::F16>();
        else run<floats::F16, floats::F32>();
    }

    // Bound by memory at 3 TB/s or by arithmetic at 500 TFLOP/s, and 3 us besides.
    uint64_t nanoseconds() const {
        uint64_t memory = (a.bytes() + b.bytes() + d.bytes()) / 3000, arithmetic = 2 * m * n * k / 500000;
        return 3000 + (memory > arithmetic ? memory : arithmetic);
    }
};

bool supported(const Description &how, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
    bool types = a.type == b.type && c.type == d.type && (a.type == F32 || a.type == F16 || a.type == BF16) &&
                 (d.type == F32 || d.type == a.type);
    bool plain = !a.order && !b.order && !c.order && !d.order && a.batch == 1 && b.batch == 1 && d.batch == 1;
    return types && plain && how.compute == COMPUTE_32F && how.scale == F32 && how.epilogue == 1 &&
           how.pointer_mode == 0 && how.transpose[2] == N && how.transpose[0] <= T && how.transpose[1] <= T;
}

// Whether the shapes fit together; sets m, n, k.
bool shapes(const Description &how, const Layout &a, const Layout &b, const Layout &c, const Layout &d,
            uint64_t sizes[3]) {
    bool ta = how.transpose[0] == T, tb = how.transpose[1] == T;
    sizes[0] = ta ? a.columns : a.rows;
    sizes[1] = tb ? b.rows : b.columns;
    sizes[2] = ta ? a.rows : a.columns;
    bool leads = true;
    for (const Layout *layout : {&a, &b, &c, &d})
        leads = leads && layout->rows > 0 && layout->columns > 0 && layout->leading >= int64_t(layout->rows);
    return leads && sizes[2] == (tb ? b.columns : b.rows) && d.rows == sizes[0] && d.columns == sizes[1] &&
           c.rows == d.rows && c.columns == d.columns;
}

// An algorithm is good for the shape that it was asked for.
struct Algorithm {
    uint64_t magic, m, n, k, workspace, types;
};
constexpr uint64_t MAGIC = 0x616c676f72697468;
struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Algorithm) <= 64 && sizeof(Heuristic) == 96, "as in cublasLt.h");
} // namespace

EXPORT size_t cublasLtGetVersion() { return 130000; }
EXPORT const char *cublasLtGetStatusName(int status) {
    switch (status) {
    case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}
EXPORT const char *cublasLtGetStatusString(int status) { return cublasLtGetStatusName(status); }

EXPORT int cublasLtCreate(void **out) {
    fake::Driver driver = fake::driver();
    if (!driver || driver.device() < 0) return NOT_INITIALIZED;
    return create(out, std::make_unique<Handle>());
}
EXPORT int cublasLtDestroy(void *handle) { return destroy<Handle>(handle); }

EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
    auto made = std::make_unique<Description>();
    made->compute = compute;
    made->scale = scale;
    return create(out, std::move(made));
}
EXPORT int cublasLtMatmulDescDestroy(void *handle) { return destroy<Description>(handle); }
EXPORT int cublasLtMatmulDescSetAttribute(void *handle, int attribute, const void *value, size_t bytes) {
    auto *how = get<Description>(handle);
    if (!how) return INVALID_VALUE;
    switch (attribute) {
    case 0: return set(how->compute, value, bytes);
    case 1: return set(how->scale, value, bytes);
    case 2: return set(how->pointer_mode, value, bytes);
    case 3: case 4: case 5: return set(how->transpose[attribute - 3], value, bytes);
    case 7: return set(how->epilogue, value, bytes);
    case 15: return set(how->sm_target, value, bytes);
    default: return INVALID_VALUE;
    }
}

EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    auto made = std::make_unique<Layout>();
    made->type = type;
    made->rows = rows;
    made->columns = columns;
    made->leading = leading;
    return create(out, std::move(made));
}
EXPORT int cublasLtMatrixLayoutDestroy(void *handle) { return destroy<Layout>(handle); }
EXPORT int cublasLtMatrixLayoutSetAttribute(void *handle, int attribute, const void *value, size_t bytes) {
    auto *layout = get<Layout>(handle);
    if (!layout) return INVALID_VALUE;
    switch (attribute) {
    case 0: return set(layout->type, value, bytes);
    case 1: return set(layout->order, value, bytes);
    case 2: return set(layout->rows, value, bytes);
    case 3: return set(layout->columns, value, bytes);
    case 4: return set(layout->leading, value, bytes);
    case 5: return set(layout->batch, value, bytes);
    default: return INVALID_VALUE;
    }
}

EXPORT int cublasLtMatmulPreferenceCreate(void **out) { return create(out, std::make_unique<Preference>()); }
EXPORT int cublasLtMatmulPreferenceDestroy(void *handle) { return destroy<Preference>(handle); }
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *handle, int attribute, const void *value, size_t bytes) {
    auto *preference = get<Preference>(handle);
    if (!preference) return INVALID_VALUE;
    uint32_t ignored;
    if (attribute == 1) return set(preference->workspace, value, bytes);
    // Alignments, 5 to 8: products here take any.
    return attribute >= 5 && attribute <= 8 ? set(ignored, value, bytes) : INVALID_VALUE;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a_handle, void *b_handle,
                                          void *c_handle, void *d_handle, void *preference_handle, int wanted,
                                          Heuristic *out, int *given) {
    auto *how = get<Description>(description);
    auto *a = get<Layout>(a_handle), *b = get<Layout>(b_handle);
    auto *c = get<Layout>(c_handle), *d = get<Layout>(d_handle);
    auto *preference = get<Preference>(preference_handle);
    uint64_t sizes[3];
    if (!get<Handle>(handle) || !how || !a || !b || !c || !d || !preference || !out || !given || wanted < 1)
        return INVALID_VALUE;
    if (!shapes(*how, *a, *b, *c, *d, sizes)) return INVALID_VALUE;
    *given = 0;
    if (!supported(*how, *a, *b, *c, *d) || getenv("FAKE_CUBLASLT_NONE")) return NOT_SUPPORTED;
    // One that needs a workspace, where it may, and one that needs none.
    for (uint64_t workspace : {uint64_t(4096), uint64_t(0)}) {
        if (*given == wanted || workspace > preference->workspace) continue;
        Heuristic &result = out[(*given)++];
        memset(&result, 0, sizeof result);
        Algorithm algorithm = {MAGIC, sizes[0], sizes[1], sizes[2], workspace, uint64_t(a->type * 64 + d->type)};
        memcpy(result.algorithm, &algorithm, sizeof algorithm);
        result.workspace = workspace;
        result.waves = 1;
    }
    return SUCCESS;
}

EXPORT int cublasLtMatmul(void *handle, void *description, const float *alpha, const void *a, void *a_handle,
                          const void *b, void *b_handle, const float *beta, const void *c, void *c_handle,
                          void *d, void *d_handle, const uint64_t *algorithm_given, void *workspace,
                          size_t workspace_bytes, void *stream) {
    fake::Driver driver = fake::driver();
    if (!driver) return NOT_INITIALIZED;
    auto *how = get<Description>(description);
    auto *la = get<Layout>(a_handle), *lb = get<Layout>(b_handle);
    auto *lc = get<Layout>(c_handle), *ld = get<Layout>(d_handle);
    if (!get<Handle>(handle) || !how || !la || !lb || !lc || !ld || !alpha || !beta) return INVALID_VALUE;
    uint64_t sizes[3];
    if (!shapes(*how, *la, *lb, *lc, *ld, sizes)) return INVALID_VALUE;
    if (!supported(*how, *la, *lb, *lc, *ld)) return NOT_SUPPORTED;
    Algorithm algorithm = {};
    if (algorithm_given) {
        memcpy(&algorithm, algorithm_given, sizeof algorithm);
        bool fits = algorithm.magic == MAGIC && algorithm.m == sizes[0] && algorithm.n == sizes[1] &&
                    algorithm.k == sizes[2] && algorithm.types == uint64_t(la->type * 64 + ld->type);
        if (!fits || algorithm.workspace > workspace_bytes) return INVALID_VALUE;
    }
    static int calls = 0;
    const char *fail = getenv("FAKE_CUBLASLT_FAIL");
    if (fail && ++calls == atoi(fail)) return EXECUTION_FAILED;

    auto product = std::make_unique<Product>();
    product->a = {reinterpret_cast<uint64_t>(a), *la};
    product->b = {reinterpret_cast<uint64_t>(b), *lb};
    product->c = {reinterpret_cast<uint64_t>(c), *lc};
    product->d = {reinterpret_cast<uint64_t>(d), *ld};
    product->transpose_a = how->transpose[0] == T;
    product->transpose_b = how->transpose[1] == T;
    product->m = sizes[0];
    product->n = sizes[1];
    product->k = sizes[2];
    product->alpha = *alpha;
    product->beta = *beta;
    product->workspace = reinterpret_cast<uint64_t>(workspace);
    product->workspace_bytes = algorithm.workspace;
    for (const Matrix *matrix : {&product->a, &product->b, &product->d})
        if (!driver.holds(matrix->address, matrix->bytes()) || matrix->address % width(matrix->layout.type))
            return INVALID_VALUE;
    if (algorithm.workspace && !driver.holds(product->workspace, algorithm.workspace)) return INVALID_VALUE;

    std::vector<FakeRange> reads = {{product->a.address, product->a.bytes()},
                                    {product->b.address, product->b.bytes()}};
    if (*beta != 0) reads.push_back({product->c.address, product->c.bytes()});
    std::vector<FakeRange> writes = {{product->d.address, product->d.bytes()}};
    if (algorithm.workspace) writes.push_back({product->workspace, algorithm.workspace});

    struct Execution {
        uint64_t end;
    };
    FakeWork work = {};
    work.name = "matmul";
    work.user = product.release();
    work.start = [](void *user, uint64_t now) -> void * {
        auto *product = static_cast<Product *>(user);
        product->run();
        return new Execution{now + product->nanoseconds()};
    };
    work.poll = [](void *execution, uint64_t *end) {
        auto *one = static_cast<Execution *>(execution);
        *end = one->end;
        delete one;
        return 1;
    };
    work.release = [](void *user) { delete static_cast<Product *>(user); };
    work.reads = reads.data();
    work.read_count = reads.size();
    work.writes = writes.data();
    work.write_count = writes.size();
    return driver.enqueue(stream, &work) == 0 ? SUCCESS : EXECUTION_FAILED;
}
