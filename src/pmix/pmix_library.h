/// @file pmix_library.h — libpmix, found and opened at run time.
///
/// Open MPI's processes learn of each other through PMIx.  Any libpmix serves clients of any other version from 3.2 on
/// (openpmix promises it, tests/pmix tries each pair), so one that is there will do: Open MPI's own, or the system's.
/// The types come from libpmix-dev; only functions that are the same in 3.2, 4 and 5 are used.
#pragma once
#include <pmix.h>
#include <pmix_server.h>

#include <string>
#include <vector>

namespace hvd::pmix {

/// The functions of one libpmix.  It stays loaded until the process ends.
struct PmixLibrary {
  std::string path;            ///< as it was opened
  std::string version;         ///< as the library says, such as "4.2.2"
  bool has_regex_type = true;  ///< from 4 on; before, maps of processes travel as plain strings

  decltype(&PMIx_server_init) init = nullptr;
  decltype(&PMIx_server_finalize) finalize = nullptr;
  decltype(&PMIx_server_register_nspace) register_nspace = nullptr;
  decltype(&PMIx_server_deregister_nspace) deregister_nspace = nullptr;
  decltype(&PMIx_server_setup_local_support) setup_local_support = nullptr;
  decltype(&PMIx_server_register_client) register_client = nullptr;
  decltype(&PMIx_server_setup_fork) setup_fork = nullptr;
  decltype(&PMIx_server_dmodex_request) dmodex_request = nullptr;
  decltype(&PMIx_generate_regex) generate_regex = nullptr;
  decltype(&PMIx_generate_ppn) generate_ppn = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
};

/// Opens the first of @p paths that has all functions.  Not thread-safe.
/// Throws Error{unavailable} with the reason for each path and with a package to install.
const PmixLibrary& open_library(const std::vector<std::string>& paths);

}  // namespace hvd::pmix
