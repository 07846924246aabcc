#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "io/check_io.h"

namespace catamount::io {
namespace {

std::string error_text(int error) { return std::generic_category().message(error); }

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  // 0, or the error that a late write met.
  int close() {
    const int fd = std::exchange(fd_, -1);
    return fd >= 0 && ::close(fd) != 0 ? errno : 0;
  }

 private:
  int fd_;
};

// 0 or errno.
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check_io(file.get() >= 0, "{}: cannot be opened: {}", path.string(), error_text(errno));
  struct stat info = {};
  check_io(::fstat(file.get(), &info) == 0, "{}: {}", path.string(), error_text(errno));
  check_io(S_ISREG(info.st_mode), "{}: expected a regular file", path.string());
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;  // mmap refuses an empty range
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  check_io(data != MAP_FAILED, "{}: cannot be mapped: {}", path.string(), error_text(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, std::span<const std::byte>{})) {}

void write_file(const std::filesystem::path& path,
                std::span<const std::span<const std::byte>> pieces) {
  // A device or pipe cannot be replaced, only written to.
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  const bool replace = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  // Through a link, the file it names is the one to replace.
  const std::filesystem::path final_path =
      std::filesystem::exists(status) && replace ? std::filesystem::canonical(path, ignored) : path;
  std::filesystem::path target = final_path;
  if (replace) target += "." + std::to_string(::getpid()) + ".partial";

  const int flags = O_WRONLY | O_CLOEXEC | (replace ? O_CREAT | O_TRUNC : 0);
  Descriptor file(::open(target.c_str(), flags, 0666));
  check_io(file.get() >= 0, "{}: cannot be written: {}", path.string(), error_text(errno));
  int error = 0;
  for (const auto piece : pieces) {
    error = write_all(file.get(), piece);
    if (error != 0) break;
  }
  if (const int late = file.close(); error == 0) error = late;
  if (replace && error == 0 && ::rename(target.c_str(), final_path.c_str()) != 0) error = errno;
  if (replace && error != 0) ::unlink(target.c_str());
  check_io(error == 0, "{}: cannot be written: {}", path.string(), error_text(error));
}

}  // namespace catamount::io
