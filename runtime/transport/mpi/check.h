/// @file check.h — turns MPI's error codes into Error.
#pragma once
#include <mpi.h>

#include <string>

#include "base/error.h"

namespace hvd::transport {

/// @p rc: the result of the MPI function @p call.  Throws Error{peer_lost} unless MPI_SUCCESS.
inline void check(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(rc, text, &length) != MPI_SUCCESS) length = 0;
  throw Error(Code::peer_lost, call,
              length ? std::string(text, static_cast<std::size_t>(length)) : "unknown MPI error");
}

}  // namespace hvd::transport
