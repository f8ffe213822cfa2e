/// @file commit.h — the source commit of this build.
#pragma once

namespace hvd::launcher {

/// As git describe writes it, with "-dirty" after a change.  Empty: built without a repository.
extern const char* const commit;

}  // namespace hvd::launcher
