/// @file own_file.h — files that we write for the user, in folders where others may write too.
///
/// There a name may be another user's trap: a link to a file of ours, or a file, FIFO or second name of his.  So paths
/// are walked part by part, and each part is looked at once it is held: links of this user's and root's are followed,
/// others' are not, and what is there already must be this user's or root's.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/file.h"

namespace hvd {

enum class WriteMode { truncate, append };

/// Opens @p path to append to, made with @p mode where it is not there; waits for the reader of a FIFO.
/// Throws Error{unavailable} naming @p path.
Fd open_own_file(const std::string& path, WriteMode mode_of_writing, mode_t mode);

/// Makes the folder, for its owner only, and the folders above it; well where it is there.  Throws Error{unavailable}.
void make_own_folder(const std::string& path);

}  // namespace hvd
