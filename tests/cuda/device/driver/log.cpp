// The log of calls: a JSON object a line, complete enough that a test can rebuild what happens before
// what. Lines of several processes may share a file: each is one write at its end.
#include "state.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

static int log_file() {
    static const int file = [] {
        const char *path = getenv("FAKE_CUDA_LOG");
        return path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    }();
    return file;
}

Line::Line(const char *call) : on(log_file() >= 0) {
    if (on) text = std::string("{\"thread\":") + std::to_string(gettid()) + ",\"call\":\"" + call + "\"";
}

Line::~Line() {
    if (!on) return;
    text += "}\n";
    // A full disk is not the device's affair; the test sees the log end early.
    if (write(log_file(), text.data(), text.size()) < 0) return;
}

Line &Line::number(const char *key, uint64_t value) {
    if (on) text += std::string(",\"") + key + "\":" + std::to_string(value);
    return *this;
}

Line &Line::string(const char *key, const std::string &value) {
    if (!on) return *this;
    text += std::string(",\"") + key + "\":\"";
    for (char c : value) {
        if (c == '"' || c == '\\') text += '\\';
        text += c < ' ' ? ' ' : c;
    }
    text += '"';
    return *this;
}

Line &Line::address(const char *key, uint64_t value) { return number(key, value); }

Line &Line::numbers(const char *key, const unsigned *values, size_t count) {
    return list(key, std::vector<size_t>(values, values + count));
}

Line &Line::list(const char *key, const std::vector<size_t> &values) {
    if (!on) return *this;
    text += std::string(",\"") + key + "\":[";
    for (size_t i = 0; i < values.size(); i++) text += (i ? "," : "") + std::to_string(values[i]);
    text += ']';
    return *this;
}

Line &Line::ranges(const char *key, const std::vector<FakeRange> &ranges) {
    if (!on || ranges.empty()) return *this;
    std::vector<size_t> numbers;
    for (const auto &range : ranges) numbers.insert(numbers.end(), {range.address, range.bytes});
    return list(key, numbers);
}

Line &Line::operation(const Operation &op) {
    if (!on) return *this;
    static const char *const kinds[] = {"kernel", "copy", "fill", "host",
                                        "record", "wait", "library", "mark"};
    string("kind", kinds[op.kind]).string("name", op.name);
    if (op.kind == Operation::Kernel) {
        numbers("grid", op.grid, 3).numbers("block", op.block, 3).number("shared", op.shared);
        // Every argument as the unsigned number that its bytes are; structs are cut at 8 bytes.
        std::vector<size_t> values;
        for (const auto &bytes : op.arguments) {
            uint64_t value = 0;
            memcpy(&value, bytes.data(), bytes.size() < 8 ? bytes.size() : 8);
            values.push_back(value);
        }
        list("args", values);
    }
    if (op.event) number("event", op.event->id);
    return *this;
}
