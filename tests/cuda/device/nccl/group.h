// Where ranks of the software NCCL meet: a file, named by the unique id, that all of them map, be they
// threads of one process or processes of one machine. A collective is a slot in it: every rank puts its
// numbers there and, when all have, takes the sum in the order of ranks.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

constexpr int SLOTS = 4, MOST_RANKS = 16;

struct Slot {
    // How many collectives have gone through this slot.
    std::atomic<uint64_t> round;
    std::atomic<uint32_t> arrived, left;
    // The latest arrival, ns of the device's clock.
    std::atomic<uint64_t> latest;
    // What each rank means to sum.
    std::atomic<uint64_t> count[MOST_RANKS];
    std::atomic<int> type[MOST_RANKS];
};

struct Meeting {
    std::atomic<uint32_t> joined, mapped;
    std::atomic<int> device[MOST_RANKS];
    std::atomic<int> process[MOST_RANKS];
    Slot slots[SLOTS];
};

class Group {
    std::string path;
    void *mapping = nullptr;
    size_t bytes = 0;
    uint64_t most = 0;
    int ranks;

  public:
    Group(const std::string &path, int ranks, uint64_t most) : path(path), most(most), ranks(ranks) {
        bytes = sizeof(Meeting) + size_t(SLOTS) * ranks * most * sizeof(float);
        int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        // Fresh pages are zero, which is every field's beginning.
        if (file < 0 || ftruncate(file, off_t(bytes)) != 0) return;
        mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
        if (mapping == MAP_FAILED) mapping = nullptr;
        close(file);
    }
    ~Group() {
        if (mapping) munmap(mapping, bytes);
    }
    Group(const Group &) = delete;
    bool good() const { return mapping != nullptr; }
    uint64_t most_numbers() const { return most; }
    Meeting &meeting() { return *static_cast<Meeting *>(mapping); }
    float *numbers(int slot, int rank) {
        auto *first = reinterpret_cast<float *>(static_cast<char *>(mapping) + sizeof(Meeting));
        return first + (size_t(slot) * ranks + rank) * most;
    }
    // Nobody else will look for it.
    void unname() { unlink(path.c_str()); }
};
