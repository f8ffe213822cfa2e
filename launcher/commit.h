/// @file commit.h — the source commit of this build.
#pragma once

namespace hvd::launcher {

/// The commit of this build, as printed by git describe, with "-dirty" for uncommitted changes.  Empty: built without a
/// repository.
extern const char* const commit;

}  // namespace hvd::launcher
