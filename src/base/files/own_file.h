/// @file own_file.h — opens files that we write for the user, in folders where other users may write too.
///
/// In such a folder another user may have set a trap under the name: a link to a file of this user, or a file or FIFO
/// of his own.  So a path is walked part by part, and each part is checked after it was opened: links of this user and
/// of root are followed, other links are refused; a file that exists must belong to this user or root.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd {

enum class WriteMode { truncate, append };

/// Opens @p path for writing at its end; creates it with @p mode if it does not exist.  Waits for the reader of a FIFO.
/// Throws Error{unavailable} naming @p path.
Fd open_own_file(const std::string& path, WriteMode mode_of_writing, mode_t mode);

/// Replaces the file at @p path as a whole, or leaves it as it was: a reader never sees half of @p text.  The text is
/// written to a file with a random name in the same folder, which is then renamed.  A device, a FIFO, or a descriptor
/// that was handed to this process cannot be replaced: the text is written into it.  The same places are refused as by
/// open_own_file().  Throws Error{unavailable} naming @p path.
void replace_own_file(const std::string& path, std::string_view text, mode_t mode);

/// Makes the folder (for its owner only) and the folders above it, where they do not exist.  Throws Error{unavailable}.
void make_own_folder(const std::string& path);

}  // namespace hvd
