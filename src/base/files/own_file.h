/// @file own_file.h — opens output files for the user, in folders where other users may write too.
///
/// In such a folder another user may put a trap in place of the file. The trap may be a link to a file of this user, or
/// another user's file or FIFO. Therefore a path is walked part by part, and each part is checked after it was opened.
/// Links of this user and of root are followed; other links are refused. An existing file must belong to this user or
/// root.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd {

enum class WriteMode { truncate, append };

/// Opens @p path for writing at its end.  Creates the file with @p mode if it does not exist.
/// A file that this process has inherited (/dev/stdout) is not truncated: the result is a duplicate of its descriptor.
/// Waits up to 5 s for the reader of a FIFO.  A FIFO is opened in non-blocking mode; write_all() waits for its reader.
/// Throws Error{unavailable} with where = @p path.
Fd open_own_file(const std::string& path, WriteMode mode_of_writing, mode_t mode);

/// Throws what open_own_file() throws for an untrusted path.  Opens and makes no file.
void need_own_path(const std::string& path);

/// Opens the FIFO at @p path for writing: its reader then sees no end before the result is closed.  Waits 1 s for a
/// reader.  Empty: @p path is no FIFO, or an inherited one.
/// Throws Error{unavailable} with where = @p path: no process reads the FIFO, or open_own_file() would refuse it.
Fd hold_fifo(const std::string& path);

/// True if @p path leads to a file that was opened for this process, such as /dev/stdout.
bool is_inherited_file(const std::string& path);

/// Opens the regular file at @p path for reading and writing.  Empty: no file is there, its name is a link, or
/// open_own_file() would refuse it.
Fd open_existing_own_file(const std::string& path);

/// Replaces the file at @p path by one with @p text, or does not change the file.  A reader never sees a part of
/// @p text: a new file with a random name in the same folder is written and then renamed.  A device, a FIFO or an
/// inherited descriptor (/proc/self/fd/N) cannot be replaced: the text is written into it.  A FIFO's reader must come
/// within 1 s, and read within 1 s.
/// Refuses the same paths as open_own_file().  Throws Error{unavailable} with where = @p path.
void replace_own_file(const std::string& path, std::string_view text, mode_t mode);

/// Makes the folder with mode 0700, and the missing folders above it.  An existing folder is not changed.
/// Throws Error{unavailable}.
void make_own_folder(const std::string& path);

}  // namespace hvd
