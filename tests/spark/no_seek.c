/* LD_PRELOAD: files below NO_SEEK_FOLDER behave as on a FUSE mount such as DBFS: they can be appended to, and nothing
 * else. Writes a line to the file NO_SEEK_LOG for each refused call and each fsync. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int there(int fd) {
  char link[64], path[4096];
  const char* folder = getenv("NO_SEEK_FOLDER");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  return folder && n > 0 && strncmp(path, folder, strlen(folder)) == 0;
}

static void tell(const char* what) {
  const char* log = getenv("NO_SEEK_LOG");
  const int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
  if (fd < 0) return;
  dprintf(fd, "%s\n", what);
  close(fd);
}

static int refuse(const char* what) {
  tell(what);
  errno = EOPNOTSUPP;
  return -1;
}

#define REAL(type, name) ((type)dlsym(RTLD_NEXT, #name))

off_t lseek(int fd, off_t offset, int whence) {
  return there(fd) ? refuse("refused lseek") : REAL(off_t(*)(int, off_t, int), lseek)(fd, offset, whence);
}
off64_t lseek64(int fd, off64_t offset, int whence) {
  return there(fd) ? refuse("refused lseek") : REAL(off64_t(*)(int, off64_t, int), lseek64)(fd, offset, whence);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return there(fd) ? refuse("refused pwrite")
                   : REAL(ssize_t(*)(int, const void*, size_t, off_t), pwrite)(fd, data, bytes, offset);
}
int ftruncate(int fd, off_t length) {
  return there(fd) ? refuse("refused ftruncate") : REAL(int (*)(int, off_t), ftruncate)(fd, length);
}
int fsync(int fd) {
  if (there(fd)) tell("fsync");
  return REAL(int (*)(int), fsync)(fd);
}
