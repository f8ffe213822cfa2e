/// @file libhvd_functions.h — libhvd as the libraries inside TensorFlow and JAX see it: the libhvd.so beside them, the
/// same that hvd._native has opened.
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

/// Fills in runtime.  "" or why it cannot.
std::string find_runtime();

/// What an hvd_status is called in the canonical codes of absl::Status, which TensorFlow's TF_Code and XLA's
/// XLA_FFI_Error_Code share.
int canonical_code(int hvd_status);

}  // namespace hvd::bridge
