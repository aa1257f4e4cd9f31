// The lines that NCCL writes with NCCL_DEBUG=INFO to the file that NCCL_DEBUG_FILE names, as far as
// anybody reads them.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <unistd.h>

class Debug {
    std::set<uint64_t> sizes;

    static std::string path() {
        const char *name = getenv("NCCL_DEBUG_FILE");
        std::string text = name ? name : "", host(256, 0);
        gethostname(host.data(), host.size() - 1);
        host.resize(strlen(host.c_str()));
        for (size_t at; (at = text.find("%p")) != std::string::npos;) text.replace(at, 2, std::to_string(getpid()));
        for (size_t at; (at = text.find("%h")) != std::string::npos;) text.replace(at, 2, host);
        return text;
    }

    static bool informs() {
        const char *level = getenv("NCCL_DEBUG");
        return level && (!strcmp(level, "INFO") || !strcmp(level, "TRACE"));
    }

    static void line(const char *level, const std::string &said) {
        std::string name = path();
        FILE *out = name.empty() ? stdout : fopen(name.c_str(), "a");
        if (!out) return;
        fprintf(out, "software:%d:%d [0] NCCL %s %s\n", getpid(), getpid(), level, said.c_str());
        name.empty() ? fflush(out) : fclose(out);
    }

    // A switch that sums, whatever P2P is.
    static bool nvls() {
        const char *there = getenv("FAKE_NCCL_NVLS"), *asked = getenv("NCCL_NVLS_ENABLE");
        return there && *there == '1' && !(asked && *asked == '0');
    }

  public:
    void warn(const std::string &said) {
        if (getenv("NCCL_DEBUG")) line("WARN", said);
    }

    void joins(int rank, int ranks) {
        if (!informs()) return;
        if (rank == 0) line("INFO", "NCCL version 2.27.3+cuda13.0");
        const char *off = getenv("NCCL_P2P_DISABLE");
        if (off) line("INFO", std::string("NCCL_P2P_DISABLE set by environment to ") + off + ".");
        line("INFO", "Using network Socket");
        if (ranks == 1) return;
        line("INFO", std::string("2 coll channels, 2 collnet channels, ") + (nvls() ? "16" : "0") +
                         " nvls channels, 2 p2p channels");
        int next = (rank + 1) % ranks;
        char text[120];
        snprintf(text, sizeof text, "Channel 00/0 : %d[%d] -> %d[%d] via %s", rank, rank, next, next,
                 off && *off == '1' ? "SHM/direct/direct" : "P2P/CUMEM/read");
        line("INFO", text);
    }

    // Once for every size.
    void sums(uint64_t bytes) {
        if (!informs() || !sizes.insert(bytes).second) return;
        line("INFO", "AllReduce: " + std::to_string(bytes) + " Bytes -> Algo " + (nvls() ? "NVLS proto SIMPLE channel{Lo..Hi}={0..15}" : "RING proto LL channel{Lo..Hi}={0..1}"));
    }
};
