// CUPTI's interface without a profiler: everything is granted, and nothing is recorded. Enough to see who is asked to
// time operations, and what becomes of a recording that is empty.
#include <cstddef>
#include <cstdint>
#include <ctime>

#define CUPTI extern "C" __attribute__((visibility("default"))) uint32_t

CUPTI cuptiGetVersion(uint32_t *version) {
    *version = 130000;
    return 0;
}
CUPTI cuptiGetResultString(uint32_t, const char **text) {
    *text = "no profiler";
    return 0;
}
CUPTI cuptiGetTimestamp(uint64_t *now) {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    *now = uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
    return 0;
}
CUPTI cuptiSubscribe(void **subscriber, void *, void *) {
    static char one;
    *subscriber = &one;
    return 0;
}
CUPTI cuptiUnsubscribe(void *) { return 0; }
CUPTI cuptiEnableCallback(uint32_t, void *, uint32_t, uint32_t) { return 0; }
CUPTI cuptiGetGraphNodeId(void *, uint64_t *id) {
    *id = 0;
    return 0;
}
CUPTI cuptiActivityRegisterCallbacks(void *, void *) { return 0; }
CUPTI cuptiActivityEnable(uint32_t) { return 0; }
CUPTI cuptiActivityDisable(uint32_t) { return 0; }
CUPTI cuptiActivityFlushAll(uint32_t) { return 0; }
// No buffer is ever filled.
CUPTI cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **) { return 12; }
CUPTI cuptiActivityGetNumDroppedRecords(void *, uint32_t, size_t *dropped) {
    *dropped = 0;
    return 0;
}
CUPTI cuptiActivityPushExternalCorrelationId(uint32_t, uint64_t) { return 0; }
CUPTI cuptiActivityPopExternalCorrelationId(uint32_t, uint64_t *last) {
    *last = 0;
    return 0;
}
