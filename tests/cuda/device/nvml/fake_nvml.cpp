// NVML for tests: the GPUs of the software device have clocks, limits and links that variables say.
//   FAKE_NVML_GPUS            how many there are (as FAKE_CUDA_DEVICES)
//   FAKE_NVML_THROTTLED_MS    by how much the power-limit counter grows at each look at it
//   FAKE_NVML_LINKS           NVLinks of each GPU: the first to the next GPU, the others to a switch
//   FAKE_NVML_FAIL            what nvmlInit answers (9: no driver, 4: no permission)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
using Device = uintptr_t; // its number + 1

enum Answer { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

unsigned number(const char *variable, unsigned otherwise) {
    const char *text = getenv(variable);
    return text ? unsigned(strtoul(text, nullptr, 10)) : otherwise;
}

bool known(Device device) { return device >= 1 && device <= number("FAKE_NVML_GPUS", 1); }

// The bus of a GPU, as the software driver gives it (0000:BUS:00.0).
unsigned bus_of(unsigned index) { return index + 1; }

Answer find(unsigned index, Device *device) {
    if (index >= number("FAKE_NVML_GPUS", 1)) return NOT_FOUND;
    *device = index + 1;
    return SUCCESS;
}

struct PciInfo {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

struct FieldValue {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, answer;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};
} // namespace

EXPORT unsigned nvmlInit_v2() { return number("FAKE_NVML_FAIL", SUCCESS); }
EXPORT unsigned nvmlShutdown() { return SUCCESS; }

EXPORT unsigned nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "580.65.06");
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetHandleByUUID(const char *, Device *) { return NOT_FOUND; }

EXPORT unsigned nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device *device) {
    unsigned domain = 0, bus = 0;
    if (sscanf(bus_id, "%x:%x", &domain, &bus) != 2) return INVALID_ARGUMENT;
    for (unsigned index = 0; index < number("FAKE_NVML_GPUS", 1); index++)
        if (bus_of(index) == bus) return find(index, device);
    return NOT_FOUND;
}

EXPORT unsigned nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned *clock) {
    if (!known(device)) return INVALID_ARGUMENT;
    *clock = type == 2 ? 2619 : 1200;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned *clock) {
    if (!known(device)) return INVALID_ARGUMENT;
    *clock = type == 2 ? 2619 : 1980;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
    if (!known(device)) return INVALID_ARGUMENT;
    *milliwatts = 121500;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) {
    if (!known(device)) return INVALID_ARGUMENT;
    *milliwatts = 700000;
    return SUCCESS;
}

// The second GPU does not tell its temperature.
EXPORT unsigned nvmlDeviceGetTemperature(Device device, unsigned, unsigned *degrees) {
    if (!known(device)) return INVALID_ARGUMENT;
    if (device == 2) return NOT_SUPPORTED;
    *degrees = 41;
    return SUCCESS;
}

// 1: idle, 4: software power cap.
EXPORT unsigned nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons) {
    if (!known(device)) return INVALID_ARGUMENT;
    *reasons = 1 | 4;
    return SUCCESS;
}

// Policy 0: power, 1: thermal; times in nanoseconds.
EXPORT unsigned nvmlDeviceGetViolationStatus(Device device, unsigned policy, unsigned long long *times) {
    if (!known(device)) return INVALID_ARGUMENT;
    static unsigned long long looks = 0;
    times[0] = 0;
    times[1] = policy == 0 ? ++looks * number("FAKE_NVML_THROTTLED_MS", 0) * 1000000ull : 0;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetEccMode(Device device, unsigned *now, unsigned *later) {
    if (!known(device)) return INVALID_ARGUMENT;
    *now = *later = 1;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetTotalEccErrors(Device device, unsigned, unsigned, unsigned long long *errors) {
    if (!known(device)) return INVALID_ARGUMENT;
    *errors = 0;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, void *) {
    if (!known(device)) return INVALID_ARGUMENT;
    if (device != 1) return SUCCESS;
    *count = 2;
    return INSUFFICIENT_SIZE;
}

EXPORT unsigned nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    if (!known(device)) return INVALID_ARGUMENT;
    if (link >= number("FAKE_NVML_LINKS", 0)) return NOT_SUPPORTED;
    *active = 1;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetNvLinkVersion(Device device, unsigned, unsigned *version) {
    if (!known(device)) return INVALID_ARGUMENT;
    *version = 7;
    return SUCCESS;
}

EXPORT unsigned nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *info) {
    if (!known(device)) return INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    unsigned next = unsigned(device) % number("FAKE_NVML_GPUS", 1);
    info->bus = link == 0 ? bus_of(next) : 0xc0;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

// Field 90: the speed of links (MB/s).
EXPORT unsigned nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    if (!known(device)) return INVALID_ARGUMENT;
    for (int at = 0; at < count; at++) {
        values[at].answer = values[at].field == 90 ? SUCCESS : NOT_SUPPORTED;
        values[at].type = 1;
        values[at].value.u = 26562;
    }
    return SUCCESS;
}
