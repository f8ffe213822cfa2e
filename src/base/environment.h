/* environment.h — reads the environment, in C and C++.
 *
 * Our own variables are in the table of options, and are read through src/options and hvd/_runtime/environment.py.
 * Other programs' variables (PATH, HOME, SLURM_*, OMPI_*) are read by environment_value(). */
#pragma once
#include <stdlib.h>
#include <unistd.h>

/* Null when the variable is not set.  The result points into the environment, and a change can make it invalid. */
static inline const char* hvd_environment_value(const char* name) { return getenv(name); }

#ifdef __cplusplus
namespace hvd {

/// Null when the variable is not set.  The result points into the environment, and a change can make it invalid.
inline const char* environment_value(const char* name) { return hvd_environment_value(name); }

/// The whole environment: "NAME=value" texts, then a null pointer.
inline char** environment_block() { return environ; }

}  // namespace hvd
#endif
