#include "pmix/pmix_library.h"

#include <dlfcn.h>

#include <cctype>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "pmix/library_paths.h"

namespace hvd::pmix {
namespace {

/// "OpenPMIx 4.2.2 (PMIx Standard: …)" → "4.2.2".
std::string version_number(std::string_view text) {
  const std::size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return "unknown";
  return std::string(
      text.substr(first, text.find_first_not_of("0123456789.abcdefghijklmnopqrstuvwxyz", first) - first));
}

template <class Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

/// Opens the library at @p path.  Nothing: it cannot be opened, or lacks a function;  @p why then has the reason.
std::optional<PmixLibrary> try_library(const std::string& path, std::string* why) {
  // Without RTLD_DEEPBIND: libpmix must call this program's accept(), see gate.h.
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *why = ::dlerror();
    return std::nullopt;
  }
  PmixLibrary found;
  decltype(&PMIx_Get_version) get_version = nullptr;
  const bool whole =
      find(handle, "PMIx_server_init", found.init) && find(handle, "PMIx_server_finalize", found.finalize) &&
      find(handle, "PMIx_server_register_nspace", found.register_nspace) &&
      find(handle, "PMIx_server_deregister_nspace", found.deregister_nspace) &&
      find(handle, "PMIx_server_setup_local_support", found.setup_local_support) &&
      find(handle, "PMIx_server_register_client", found.register_client) &&
      find(handle, "PMIx_server_setup_fork", found.setup_fork) &&
      find(handle, "PMIx_server_dmodex_request", found.dmodex_request) &&
      find(handle, "PMIx_generate_regex", found.generate_regex) &&
      find(handle, "PMIx_generate_ppn", found.generate_ppn) && find(handle, "PMIx_Error_string", found.error_string) &&
      find(handle, "PMIx_Get_version", get_version);
  if (!whole) {
    *why = path + ": has no PMIx server in it, or one older than 3.2";
    ::dlclose(handle);
    return std::nullopt;
  }
  found.path = path;
  found.version = version_number(get_version());
  found.has_regex_type = found.version[0] >= '4';
  return found;
}

}  // namespace

const PmixLibrary& open_library(const std::vector<std::string>& paths) {
  static std::optional<PmixLibrary> opened;
  std::vector<std::string> reasons;
  for (std::size_t i = 0; !opened && i < paths.size(); ++i) {
    std::string why;
    opened = try_library(paths[i], &why);
    if (!opened) reasons.push_back(why);
  }
  if (!opened) throw Error(Code::unavailable, "libpmix", join(reasons, "; "), install_hint);
  return *opened;
}

}  // namespace hvd::pmix
