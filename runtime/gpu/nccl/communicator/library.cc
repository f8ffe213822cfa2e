#include "gpu/nccl/communicator/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "base/dtype_numbers.h"
#include "base/error.h"
#include "options/variable.h"

namespace hvd::nccl {

std::string version_text(int v) {
  return std::to_string(v / 10000) + "." + std::to_string(v % 10000 / 100) + "." + std::to_string(v % 100);
}

namespace {

struct NcclLookup {
  std::unique_ptr<Library> library;
  std::string why;
};

std::string path_of(const void* symbol, const char* fallback) {
  Dl_info info{};
  return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : fallback;
}

/// Fills the table.  Returns an empty text, or the first symbol that the library lacks.
std::string find_symbols(Library& l, void* handle) {
#define HVD_NCCL_FIND(member, symbol, arguments)                          \
  l.member = reinterpret_cast<decltype(l.member)>(dlsym(handle, symbol)); \
  if (!l.member) return symbol;
  HVD_NCCL_FUNCTIONS(HVD_NCCL_FIND)
#undef HVD_NCCL_FIND
  l.split = reinterpret_cast<decltype(l.split)>(dlsym(handle, "ncclCommSplit"));
  l.mem_alloc = reinterpret_cast<decltype(l.mem_alloc)>(dlsym(handle, "ncclMemAlloc"));
  l.register_local = reinterpret_cast<decltype(l.register_local)>(dlsym(handle, "ncclCommRegister"));
  l.register_window = reinterpret_cast<decltype(l.register_window)>(dlsym(handle, "ncclCommWindowRegister"));
  l.error_string = reinterpret_cast<decltype(l.error_string)>(dlsym(handle, "ncclGetErrorString"));
  l.last_error = reinterpret_cast<decltype(l.last_error)>(dlsym(handle, "ncclGetLastError"));
  return l.error_string ? "" : "ncclGetErrorString";
}

/// Opens HVD_NCCL_LIBRARY, else the framework's copy, else the system's copy.
void* find_library(std::string& why) {
  const char* named = options::value_of("HVD_NCCL_LIBRARY");
  if (named) {
    void* handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (!handle) why = std::string("HVD_NCCL_LIBRARY: ") + dlerror();
    return handle;
  }
  if (void* loaded = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD)) return loaded;
  // NCCL is linked into a framework.
  if (dlsym(RTLD_DEFAULT, "ncclCommInitRankConfig")) return dlopen(nullptr, RTLD_NOW);
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle) why = std::string("no NCCL: ") + dlerror();
  return handle;
}

NcclLookup open() {
  std::string why;
  void* handle = find_library(why);
  if (!handle) return {nullptr, why};
  auto l = std::make_unique<Library>();
  const std::string absent = find_symbols(*l, handle);
  if (l->get_version) l->path = path_of(reinterpret_cast<const void*>(l->get_version), "libnccl.so.2");
  if (l->get_version && l->get_version(&l->version) == success && l->version < oldest_version)
    return {nullptr, l->path + " is NCCL " + version_text(l->version) + ", 2.18 or later is needed"};
  if (!absent.empty()) return {nullptr, l->path + " lacks " + absent + ": NCCL 2.18 or later is needed"};
  return {std::move(l), {}};
}

const NcclLookup& opened() {
  // Never destroyed: the runtime shuts down in an exit handler.  Objects that are made after the handler's registration
  // are destroyed before the handler runs.
  static const NcclLookup& once = *new NcclLookup(open());
  return once;
}

}  // namespace

const Library* Library::get() { return opened().library.get(); }
std::string Library::why_not() { return opened().why; }

std::string Library::text(int code, Comm comm) const {
  std::string text = error_string(code);
  const char* more = last_error ? last_error(comm) : nullptr;
  if (more && *more) text += std::string(" (") + more + ")";
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

void Library::check(int code, const char* what, Comm comm) const {
  if (code == success || code == in_progress) return;
  throw Error(code == remote_error ? Code::peer_lost : Code::unavailable, what, text(code, comm),
              "NCCL_DEBUG=INFO shows more");
}

int type_of(DType dtype) {
#define HVD_NUMBER(enumerator, word, nccl, ...) nccl,
  constexpr int numbers[] = {HVD_DTYPE_NUMBERS(HVD_NUMBER)};
#undef HVD_NUMBER
  return numbers[static_cast<int>(dtype)];
}

}  // namespace hvd::nccl
