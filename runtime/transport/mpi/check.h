/// @file check.h — MPI's error codes as Error.
#pragma once
#include <mpi.h>

#include <string>

#include "base/error.h"

namespace hvd::transport {

inline void check(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(rc, text, &length) != MPI_SUCCESS) length = 0;
  throw Error(Code::peer_lost, call,
              length ? std::string(text, static_cast<std::size_t>(length)) : "unknown MPI error");
}

}  // namespace hvd::transport
