/// Reads native frames of another process with elfutils' libdw, which is loaded at run time.  Without libdw, a line of
/// the output says that the frames are missing.  The declarations fit libdwfl(3) from 0.158 on.
#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/file.h"
#include "base/format.h"
#include "rank/diagnostics/stacks/stack_capture.h"
#include "rank/diagnostics/stacks/system_call.h"

namespace hvd::rank {

namespace {

struct Dwfl;
struct Module;
struct Thread;
struct Frame;

struct DwflCallbacks {
  int (*find_elf)(Module*, void**, const char*, std::uint64_t, char**, void**);
  int (*find_debuginfo)(Module*, void**, const char*, std::uint64_t, const char*, const char*, std::uint32_t, char**);
  int (*section_address)(Module*, void**, const char*, std::uint64_t, const char*, std::uint32_t, const void*,
                         std::uint64_t*);
  char** debuginfo_path;
};

constexpr int go_on = 0, stop = 1;
constexpr int most_frames = 64;

struct Libdw {
  Dwfl* (*begin)(const DwflCallbacks*) = nullptr;
  void (*end)(Dwfl*) = nullptr;
  int (*report)(Dwfl*, pid_t) = nullptr;
  int (*report_end)(Dwfl*, int (*)(Module*, void*, const char*, std::uint64_t, void*), void*) = nullptr;
  int (*attach)(Dwfl*, pid_t, bool) = nullptr;
  int (*threads)(Dwfl*, int (*)(Thread*, void*), void*) = nullptr;
  pid_t (*thread_id)(Thread*) = nullptr;
  int (*frames)(Thread*, int (*)(Frame*, void*), void*) = nullptr;
  bool (*pc)(Frame*, std::uint64_t*, bool*) = nullptr;
  Module* (*module_at)(Dwfl*, std::uint64_t) = nullptr;
  const char* (*name_at)(Module*, std::uint64_t) = nullptr;
  const char* (*module_name)(Module*, void***, std::uint64_t*, std::uint64_t*, std::uint64_t*, std::uint64_t*,
                             const char**, const char**) = nullptr;
  const char* (*message)(int) = nullptr;
  decltype(DwflCallbacks::find_elf) find_elf = nullptr;

  template <class F>
  static bool find(void* library, const char* name, F* out) {
    *out = reinterpret_cast<F>(dlsym(library, name));
    return *out != nullptr;
  }

  bool load() {
    void* l = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    return l && find(l, "dwfl_begin", &begin) && find(l, "dwfl_end", &end) &&
           find(l, "dwfl_linux_proc_report", &report) && find(l, "dwfl_report_end", &report_end) &&
           find(l, "dwfl_linux_proc_attach", &attach) && find(l, "dwfl_getthreads", &threads) &&
           find(l, "dwfl_thread_tid", &thread_id) && find(l, "dwfl_thread_getframes", &frames) &&
           find(l, "dwfl_frame_pc", &pc) && find(l, "dwfl_addrmodule", &module_at) &&
           find(l, "dwfl_module_addrname", &name_at) && find(l, "dwfl_module_info", &module_name) &&
           find(l, "dwfl_errmsg", &message) && find(l, "dwfl_linux_proc_find_elf", &find_elf);
  }
};

struct StackWalk {
  Libdw library;
  Dwfl* dwfl = nullptr;
  pid_t pid = 0;
  int depth = 0;
  std::map<pid_t, std::string> doing;  ///< the system call of each thread, read before the thread was stopped
};

/// Finds no debug files.  Function names are enough, and a search for files with line numbers takes long.
int no_debuginfo(Module*, void**, const char*, std::uint64_t, const char*, const char*, std::uint32_t, char**) {
  return -1;
}

/// The demangled name of a C++ function; other names unchanged.
std::string readable(const char* name) {
  int status = 0;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain ? plain : name;
  std::free(plain);
  return text;
}

int one_frame(Frame* frame, void* data) {
  StackWalk& walk = *static_cast<StackWalk*>(data);
  std::uint64_t pc = 0;
  bool exact = false;
  if (!walk.library.pc(frame, &pc, &exact)) return stop;
  const std::uint64_t at = exact ? pc : pc - 1;  // a return address is one past its call instruction
  Module* module = walk.library.module_at(walk.dwfl, at);
  const char* name = module ? walk.library.name_at(module, at) : nullptr;
  const char* file =
      module ? walk.library.module_name(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr)
             : nullptr;
  const std::string path = file ? file : "?";
  std::printf("  #%-2d %s (%s)\n", walk.depth, name ? readable(name).c_str() : "?",
              path.substr(path.rfind('/') + 1).c_str());
  return ++walk.depth < most_frames ? go_on : stop;
}

int one_thread(Thread* thread, void* data) {
  StackWalk& walk = *static_cast<StackWalk*>(data);
  const pid_t id = walk.library.thread_id(thread);
  std::ifstream file(formatted("/proc/{}/task/{}/comm", walk.pid, id));
  std::string name;
  std::getline(file, name);
  const std::string doing = walk.doing[id];
  std::printf("thread %d %s%s%s\n", static_cast<int>(id), name.c_str(), doing.empty() ? "" : ", ", doing.c_str());
  walk.depth = 0;
  walk.library.frames(thread, one_frame, data);
  return go_on;
}

}  // namespace

int print_native_stack(pid_t pid) {
  StackWalk walk;
  walk.pid = pid;
  if (!walk.library.load()) {
    std::puts("no native frames: libdw.so.1 is not installed here (apt install libdw1)");
    return 1;
  }
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(formatted("/proc/{}/task", pid), ignored)) {
    const pid_t id = std::atoi(task.path().filename().c_str());
    walk.doing[id] = system_call_of(pid, id);
  }
  const DwflCallbacks callbacks{walk.library.find_elf, no_debuginfo, nullptr, nullptr};
  walk.dwfl = walk.library.begin(&callbacks);
  int error =
      walk.dwfl ? walk.library.report(walk.dwfl, pid) : -1;  // a number of errno, or -1: message() has the reason
  if (error == 0) error = walk.library.report_end(walk.dwfl, nullptr, nullptr);
  if (error == 0) error = walk.library.attach(walk.dwfl, pid, false);
  if (error == 0) {
    walk.library.threads(walk.dwfl, one_thread, &walk);
  } else {
    const char* const why = walk.library.message(-1);
    std::printf("no native frames: %s (may this user use ptrace here?)\n", error > 0 ? errno_text(error).c_str()
                                                                           : why     ? why
                                                                                     : "the process cannot be read");
  }
  if (walk.dwfl) walk.library.end(walk.dwfl);
  return error == 0 ? 0 : 1;
}

}  // namespace hvd::rank
