// Faults that a test asks for:
//   FAKE_CUDA_FAIL="cuMemAlloc_v2:3=2,cuGraphLaunch:1=719"  the n-th call of a function answers a code
//   FAKE_CUDA_HANG="rms_norm:5"                             the n-th execution of a kernel never ends
//   FAKE_CUDA_BREAK="rms_norm:5=700"                        the n-th execution fails, asynchronously
//   FAKE_CUDA_SPOIL="rms_norm:5=1"                          after the n-th execution of a kernel the first word at its
//                                                           argument (from 0) is another: its lowest bit is flipped
#include "state.h"

#include <cstdlib>
#include <sstream>

namespace {
struct Fault {
    std::string name;
    uint64_t at;
    CUresult code;
    uint64_t seen = 0;
};

std::vector<Fault> read(const char *variable) {
    std::vector<Fault> faults;
    const char *text = getenv(variable);
    std::stringstream parts(text ? text : "");
    for (std::string part; std::getline(parts, part, ',');) {
        auto colon = part.find(':');
        auto equals = part.find('=');
        if (colon == std::string::npos) {
            fprintf(stderr, "%s: %s is not NAME:COUNT or NAME:COUNT=CODE\n", variable, part.c_str());
            abort();
        }
        Fault fault;
        fault.name = part.substr(0, colon);
        fault.at = strtoull(part.c_str() + colon + 1, nullptr, 10);
        fault.code = equals == std::string::npos ? 0 : atoi(part.c_str() + equals + 1);
        faults.push_back(fault);
    }
    return faults;
}

const Fault *due(std::vector<Fault> &faults, const std::string &name) {
    const Fault *found = nullptr;
    for (auto &fault : faults)
        if (fault.name == name && ++fault.seen == fault.at) found = &fault;
    return found;
}
} // namespace

CUresult injected_failure(const char *function) {
    static std::vector<Fault> faults = read("FAKE_CUDA_FAIL");
    const Fault *fault = faults.empty() ? nullptr : due(faults, function);
    return fault ? fault->code : SUCCESS;
}

int spoils(const std::string &name) {
    static std::vector<Fault> faults = read("FAKE_CUDA_SPOIL");
    const Fault *fault = faults.empty() ? nullptr : due(faults, name);
    return fault ? int(fault->code) : -1;
}

bool hangs(const std::string &name) {
    static std::vector<Fault> faults = read("FAKE_CUDA_HANG");
    return due(faults, name) != nullptr;
}

CUresult breaks(const std::string &name) {
    static std::vector<Fault> faults = read("FAKE_CUDA_BREAK");
    const Fault *fault = due(faults, name);
    return fault ? fault->code : SUCCESS;
}
