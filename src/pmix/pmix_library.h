/// @file pmix_library.h — finds and opens libpmix at run time.
///
/// The processes of Open MPI find each other through PMIx.  A libpmix serves clients of any other version from 3.2 on.
/// openpmix promises this, and tests/launcher/test_daemons.py tries each pair of versions.  So Open MPI's libpmix and
/// the system's libpmix both work.  The types are from libpmix-dev.  Only functions that are the same in 3.2, 4 and 5
/// are used.
#pragma once
#include <pmix.h>
#include <pmix_server.h>

#include <string>
#include <vector>

namespace hvd::pmix {

/// The functions of one libpmix, which stays loaded until the process ends.
struct PmixLibrary {
  std::string path;            ///< the path that was opened
  std::string version;         ///< the library's version, such as "4.2.2"
  bool has_regex_type = true;  ///< from version 4 on; before, maps of processes are plain strings

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

/// Opens the first library of @p paths that has all functions.  Later calls return the same library.  Not thread-safe.
/// Throws Error{unavailable} with a reason for each path, and with a package to install.
const PmixLibrary& open_library(const std::vector<std::string>& paths);

}  // namespace hvd::pmix
