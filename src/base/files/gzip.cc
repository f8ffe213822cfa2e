#include "base/files/gzip.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

#include "base/error.h"
#include "base/file.h"

namespace hvd {
namespace {

// z_stream and the constants of zlib.h, which are the same in all versions from 1.2 on.
struct ZStream {
  const unsigned char* next_in;
  unsigned avail_in;
  unsigned long total_in;
  unsigned char* next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char* msg;
  void* state;
  void* (*zalloc)(void*, unsigned, unsigned);
  void (*zfree)(void*, void*);
  void* opaque;
  int data_type;
  unsigned long adler, reserved;
};
constexpr int finish = 4, stream_end = 1, needs_input = -5, deflated = 8, gzip_window = 15 + 16, fastest = 1,
              memory_level = 8;

struct Zlib {
  const char* (*version)();
  int (*deflate_init)(ZStream*, int level, int method, int window, int memory, int strategy, const char*, int bytes);
  int (*deflate)(ZStream*, int flush);
  int (*deflate_reset)(ZStream*);
  int (*deflate_end)(ZStream*);
  int (*inflate_init)(ZStream*, int window, const char*, int bytes);
  int (*inflate)(ZStream*, int flush);
  int (*inflate_reset)(ZStream*);
  int (*inflate_end)(ZStream*);
};

template <typename Function>
void find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
  if (!*out) throw Error(Code::unavailable, "zlib", std::string("it has no function ") + name);
}

Zlib load() {
  void* const library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (!library)
    throw Error(Code::unavailable, "zlib", "there is no libz.so.1",
                "install it (apt install zlib1g), or give the file another ending than .gz");
  Zlib z{};
  find(library, "zlibVersion", &z.version);
  find(library, "deflateInit2_", &z.deflate_init);
  find(library, "deflate", &z.deflate);
  find(library, "deflateReset", &z.deflate_reset);
  find(library, "deflateEnd", &z.deflate_end);
  find(library, "inflateInit2_", &z.inflate_init);
  find(library, "inflate", &z.inflate);
  find(library, "inflateReset", &z.inflate_reset);
  find(library, "inflateEnd", &z.inflate_end);
  return z;
}

const Zlib& zlib() {
  static const Zlib z = load();
  return z;
}

/// A stream for unpacking.  The destructor ends the stream.
struct Inflater {
  Inflater() {
    if (zlib().inflate_init(&z, gzip_window, zlib().version(), sizeof z) != 0)
      throw Error(Code::unavailable, "zlib", "it cannot begin");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { zlib().inflate_end(&z); }
  ZStream z{};
};

}  // namespace

struct GzipMembers::Stream {
  ZStream z{};
};

GzipMembers::GzipMembers() : stream_(std::make_unique<Stream>()) {
  if (zlib().deflate_init(&stream_->z, fastest, deflated, gzip_window, memory_level, 0, zlib().version(),
                          sizeof stream_->z) != 0)
    throw Error(Code::unavailable, "zlib", "it cannot begin");
}

GzipMembers::~GzipMembers() { zlib().deflate_end(&stream_->z); }

std::string_view GzipMembers::member(std::string_view content) {
  ZStream& z = stream_->z;
  zlib().deflate_reset(&z);
  z.next_in = reinterpret_cast<const unsigned char*>(content.data());
  z.avail_in = static_cast<unsigned>(content.size());
  std::size_t made = 0;
  for (int status = 0; status != stream_end;) {
    text_.resize(std::max(text_.size(), made + content.size() / 2 + 64));
    z.next_out = reinterpret_cast<unsigned char*>(text_.data()) + made;
    z.avail_out = static_cast<unsigned>(text_.size() - made);
    status = zlib().deflate(&z, finish);
    made = text_.size() - z.avail_out;
    if (status < 0 && z.avail_out > 0) throw Error(Code::internal, "zlib", "it does not compress");
    if (status != stream_end) text_.resize(2 * text_.size());
  }
  return std::string_view(text_).substr(0, made);
}

void gunzip(int from, int to) {
  Inflater inflater;
  ZStream& z = inflater.z;
  std::string in(64 << 10, '\0'), out(256 << 10, '\0');
  for (;;) {
    const ssize_t got = ::read(from, in.data(), in.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    z.next_in = reinterpret_cast<const unsigned char*>(in.data());
    z.avail_in = static_cast<unsigned>(got);
    while (z.avail_in > 0 || z.avail_out == 0) {
      z.next_out = reinterpret_cast<unsigned char*>(out.data());
      z.avail_out = static_cast<unsigned>(out.size());
      const int status = zlib().inflate(&z, 0);
      if (!write_all(to, std::string_view(out).substr(0, out.size() - z.avail_out)))
        throw Error(Code::unavailable, "gunzip", "there is no room for the file's content");
      if (status == stream_end && zlib().inflate_reset(&z) == 0) continue;
      if (status == needs_input) break;  // all of this input had just filled the output
      if (status != 0) return;           // damaged content
    }
  }
}

}  // namespace hvd
