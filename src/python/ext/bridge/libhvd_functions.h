/// @file libhvd_functions.h — libhvd for the libraries inside TensorFlow and JAX: the libhvd.so beside them, which
/// hvd._native has opened too.
#pragma once
#include <string>

#include "hvd/hvd.h"

namespace hvd::bridge {

/// The functions of hvd.h.
struct RuntimeFunctions {
  decltype(&hvd_get_world) get_world = nullptr;
  decltype(&hvd_submit_many) submit_many = nullptr;
  decltype(&hvd_notify) notify = nullptr;
  decltype(&hvd_poll) poll = nullptr;
  decltype(&hvd_wait) wait = nullptr;
  decltype(&hvd_take) take = nullptr;
  decltype(&hvd_take_splits) take_splits = nullptr;
  decltype(&hvd_set_get) set_get = nullptr;
  decltype(&hvd_free) free = nullptr;
  decltype(&hvd_release) release = nullptr;
  decltype(&hvd_part_begin) part_begin = nullptr;
  decltype(&hvd_part_end) part_end = nullptr;
  decltype(&hvd_last_error) last_error = nullptr;
};
extern RuntimeFunctions runtime;

/// Fills in runtime. Returns "" or the error.
std::string find_runtime();

/// The number of an hvd_status in the canonical codes of absl::Status, which TensorFlow's TF_Code and XLA's
/// XLA_FFI_Error_Code share.
int canonical_code(int hvd_status);

}  // namespace hvd::bridge
