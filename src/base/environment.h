/* environment.h — the one place that touches the environment, in C and C++.
 *
 * Variables of ours are read through src/options (and hvd/_runtime/environment.py), where the table of options has
 * them.  Other programs' variables (PATH, HOME, SLURM_*, OMPI_*) are read by environment_value(). */
#pragma once
#include <stdlib.h>
#include <unistd.h>

/* Null when the variable is not set.  Points into the environment: do not keep it over a change. */
static inline const char* hvd_environment_value(const char* name) { return getenv(name); }

#ifdef __cplusplus
namespace hvd {

/// Null when the variable is not set.  Points into the environment: do not keep it over a change.
inline const char* environment_value(const char* name) { return hvd_environment_value(name); }

/// All of the environment: "NAME=value" each, then a null.
inline char** environment_block() { return environ; }

}  // namespace hvd
#endif
