// libnvrtc.so.13 for tests: "compiles" CUDA C++ with g++ and tests/cuda/shim.h into a shared object, which
// stands for a cubin: the software device loads it. Errors have NVRTC's form, `file(line): error: text`.
//   FAKE_NVRTC_SHIM   path of shim.h
//   FAKE_NVRTC_CACHE  a folder that keeps what was compiled, by content (optional)
//   FAKE_NVRTC_CXX    the compiler (g++)
//   FAKE_NVRTC_TRACE  1: kernels tell the software device of every access to memory (slow)
//   FAKE_NVRTC_BREAK  a unit that gets a line which is no C++, to see what its error becomes
//   FAKE_NVRTC_LOG    a file that gets a line for every program that is compiled, kept or not (optional)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
enum Result { SUCCESS, OUT_OF_MEMORY, CREATION, INVALID_INPUT, INVALID_PROGRAM, INVALID_OPTION, COMPILATION };

struct Program {
    std::string name, source, log, image;
    std::map<std::string, std::string> headers;
};

// NVRTC asserts on a wrong handle; here it is an answer.
std::mutex lock;
std::map<void *, Program *> programs;
Program *program_of(void *handle) {
    std::lock_guard<std::mutex> held(lock);
    auto found = programs.find(handle);
    return found == programs.end() ? nullptr : found->second;
}

std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}

bool write_file(const std::string &path, const std::string &text) {
    std::ofstream out(path, std::ios::binary);
    return bool(out << text);
}

// A folder of its own for one compilation, removed at the end.
struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/nvrtc-XXXXXX";
        if (char *made = mkdtemp(name)) path = made;
    }
    ~Folder() {
        if (path.empty()) return;
        for (auto &file : files) unlink((path + "/" + file).c_str());
        rmdir(path.c_str());
    }
    bool put(const std::string &name, const std::string &text) {
        files.push_back(name);
        return write_file(path + "/" + name, text);
    }
    std::vector<std::string> files;
};

// Runs a program without a shell; standard error goes to `errors`.
int run(const std::vector<std::string> &words, const std::string &errors) {
    pid_t child = fork();
    if (child < 0) return 127;
    if (child == 0) {
        if (!freopen(errors.c_str(), "w", stderr)) _exit(127);
        // The compiler is no client of the software device.
        unsetenv("LD_LIBRARY_PATH");
        unsetenv("LD_PRELOAD");
        setenv("LC_ALL", "C", 1);
        std::vector<char *> arguments;
        for (auto &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// A program's name may be a path, as of a file in the source tree.
std::string base(const std::string &name) {
    size_t slash = name.rfind('/');
    return slash == std::string::npos ? name : name.substr(slash + 1);
}

// What a line of g++'s says, `path:line:column: kind: text`; without a kind where it has another form. (A regular
// expression takes longer to compile than the rest of this file.)
struct Said {
    std::string file, line, kind, text;
};
Said said_in(const std::string &line) {
    for (std::string kind : {"fatal error", "error", "warning"}) {
        size_t at = line.find(": " + kind + ": ");
        if (at == std::string::npos) continue;
        size_t column = line.rfind(':', at - 1);
        size_t number = column == std::string::npos || column == 0 ? std::string::npos : line.rfind(':', column - 1);
        if (at == 0 || number == std::string::npos) continue;
        auto digits = [&](size_t from, size_t to) {
            return from < to && line.find_first_not_of("0123456789", from) >= to;
        };
        if (!digits(number + 1, column) || !digits(column + 1, at)) continue;
        return {line.substr(0, number), line.substr(number + 1, column - number - 1), kind,
                line.substr(at + kind.size() + 4)};
    }
    return {};
}

// g++'s `path:line:column: error: text` becomes NVRTC's `name(line): error: text`.
std::string translate(const std::string &log, const std::string &folder, const std::string &name) {
    std::stringstream in(log);
    std::string out;
    int errors = 0;
    for (std::string line; std::getline(in, line);) {
        Said said = said_in(line);
        if (said.kind.empty()) continue;
        std::string file = said.file;
        if (file.rfind(folder + "/", 0) == 0) file = file.substr(folder.size() + 1);
        if (file == base(name)) file = name;
        bool warning = said.kind == "warning";
        errors += !warning;
        out += file + "(" + said.line + "): " + (warning ? "warning" : "error") + ": " + said.text + "\n\n";
    }
    if (errors == 0) return out.empty() ? log : out;
    out += std::to_string(errors) + (errors == 1 ? " error" : " errors") + " detected in the compilation of \"" +
           name + "\".\n";
    return out;
}

uint64_t fnv(const std::string &text, uint64_t hash) {
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
    return (hash ^ 0xff) * 0x100000001b3ull;
}

std::string cache_file(const Program &program, const std::vector<std::string> &options) {
    const char *folder = getenv("FAKE_NVRTC_CACHE");
    if (!folder) return "";
    std::string parts[2];
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t hash = fnv(program.source, 0xcbf29ce484222325ull + i * 0x9e3779b97f4a7c15ull);
        for (auto &[name, text] : program.headers) hash = fnv(text, fnv(name, hash));
        for (auto &option : options) hash = fnv(option, hash);
        char hex[20];
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
        parts[i] = hex;
    }
    mkdir(folder, 0755);
    return std::string(folder) + "/" + parts[0] + parts[1] + ".so";
}

void note(const std::string &line) {
    if (const char *path = getenv("FAKE_NVRTC_LOG")) std::ofstream(path, std::ios::app) << line + "\n";
}
} // namespace

EXPORT int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

EXPORT const char *nvrtcGetErrorString(int code) {
    static const char *const names[] = {"NVRTC_SUCCESS",
                                        "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM",
                                        "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION"};
    return code >= 0 && code <= COMPILATION ? names[code] : "NVRTC_ERROR unknown";
}

EXPORT int nvrtcGetNumSupportedArchs(int *count) {
    *count = 3;
    return SUCCESS;
}
EXPORT int nvrtcGetSupportedArchs(int *archs) {
    archs[0] = 80;
    archs[1] = 90;
    archs[2] = 100;
    return SUCCESS;
}

EXPORT int nvrtcCreateProgram(void **out, const char *source, const char *name, int count,
                              const char *const *headers, const char *const *include_names) {
    if (!out || !source || count < 0) return INVALID_INPUT;
    auto *program = new Program;
    program->source = source;
    program->name = name ? name : "default_program";
    const char *broken = getenv("FAKE_NVRTC_BREAK");
    if (broken && program->name == broken) program->source += "\nthis line is no kernel;\n";
    for (int i = 0; i < count; i++) program->headers[include_names[i]] = headers[i];
    std::lock_guard<std::mutex> held(lock);
    programs[program] = program;
    *out = program;
    return SUCCESS;
}

EXPORT int nvrtcDestroyProgram(void **handle) {
    Program *program = handle ? program_of(*handle) : nullptr;
    if (!program) return INVALID_PROGRAM;
    std::lock_guard<std::mutex> held(lock);
    programs.erase(program);
    delete program;
    *handle = nullptr;
    return SUCCESS;
}

EXPORT int nvrtcCompileProgram(void *handle, int count, const char *const *given) {
    Program *program = program_of(handle);
    if (!program) return INVALID_PROGRAM;
    // sm_XX makes a cubin; of other options only definitions matter on a CPU.
    int sm = 0;
    std::vector<std::string> options = {"-std=c++17"};
    for (int i = 0; i < count; i++) {
        std::string option = given[i];
        for (std::string lead : {"--gpu-architecture=", "-arch="})
            if (option.rfind(lead, 0) == 0 && sscanf(option.c_str() + lead.size(), "sm_%d", &sm) != 1)
                sscanf(option.c_str() + lead.size(), "compute_%d", &sm);
        if (option == "-D" || option == "--define-macro") {
            if (++i == count) return INVALID_OPTION;
            options.push_back(std::string("-D") + given[i]);
        } else if (option.rfind("-D", 0) == 0) {
            options.push_back(option);
        } else if (option.rfind("--define-macro=", 0) == 0) {
            options.push_back("-D" + option.substr(15));
        } else if (option.rfind("-", 0) != 0) {
            program->log = "nvrtc: error: invalid value for --gpu-architecture or unknown option: " + option + "\n";
            return INVALID_OPTION;
        }
    }
    if (sm != 80 && sm != 90 && sm != 100) {
        program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
        return INVALID_OPTION;
    }
    options.push_back("-DSHIM_SM=" + std::to_string(sm));
    // Instrumented for a thread sanitizer, and linked without one: the software device listens.
    const char *trace = getenv("FAKE_NVRTC_TRACE");
    if (trace && *trace == '1') {
        options.push_back("-fsanitize=thread");
        options.push_back("--param=tsan-instrument-func-entry-exit=0");
    }
    const char *shim = getenv("FAKE_NVRTC_SHIM");
    const char *compiler = getenv("FAKE_NVRTC_CXX");
    if (!shim) {
        program->log = "the software NVRTC needs FAKE_NVRTC_SHIM\n";
        return COMPILATION;
    }
    std::string kept = cache_file(*program, options);
    std::string defines;
    for (auto &option : options) defines += " " + option;
    note(program->name + defines);
    if (!kept.empty() && !(program->image = read_file(kept)).empty()) return SUCCESS;

    Folder folder;
    std::string name = base(program->name);
    // The device that it was compiled for; the software device refuses others as a real one does.
    bool ready = !folder.path.empty() &&
                 folder.put(name, program->source + "\nextern \"C\" {\n__attribute__((used, visibility(\"default\"))) "
                                                    "extern const int shim_sm = SHIM_SM;\n}\n");
    for (auto &[header, text] : program->headers) ready = ready && folder.put(header, text);
    if (!ready) return program->log = "no temporary folder\n", OUT_OF_MEMORY;
    folder.files.insert(folder.files.end(), {"out.o", "out.so", "errors"});
    std::string object = folder.path + "/out.o", image = folder.path + "/out.so", errors = folder.path + "/errors";
    std::string cxx = compiler ? compiler : "g++";
    // kernels run briefly: -O2 takes half as long again to compile them
    std::vector<std::string> words = {cxx, "-x", "c++", "-O1", "-finline-small-functions", "-findirect-inlining", "-w", "-fPIC", "-c", "-include", shim, "-I",
                                      folder.path, "-o", object};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(folder.path + "/" + name);
    int code = run(words, errors);
    if (code == 0) code = run({cxx, "-shared", "-o", image, object}, errors);
    program->log = translate(read_file(errors), folder.path, program->name);
    if (code) return COMPILATION;
    program->image = read_file(image);
    if (!kept.empty()) {
        std::string part = kept + "." + std::to_string(getpid()) + "." + std::to_string(uintptr_t(program));
        if (write_file(part, program->image)) rename(part.c_str(), kept.c_str());
    }
    return SUCCESS;
}

static int give(const std::string *text, size_t *size, char *out, bool terminated) {
    if (!text || (!terminated && text->empty())) return INVALID_PROGRAM;
    size_t bytes = text->size() + terminated;
    if (size) *size = bytes;
    if (out) memcpy(out, text->c_str(), bytes);
    return SUCCESS;
}
EXPORT int nvrtcGetProgramLogSize(void *handle, size_t *size) {
    Program *program = program_of(handle);
    return give(program ? &program->log : nullptr, size, nullptr, true);
}
EXPORT int nvrtcGetProgramLog(void *handle, char *out) {
    Program *program = program_of(handle);
    return give(program ? &program->log : nullptr, nullptr, out, true);
}
EXPORT int nvrtcGetCUBINSize(void *handle, size_t *size) {
    Program *program = program_of(handle);
    return give(program ? &program->image : nullptr, size, nullptr, false);
}
EXPORT int nvrtcGetCUBIN(void *handle, char *out) {
    Program *program = program_of(handle);
    return give(program ? &program->image : nullptr, nullptr, out, false);
}
