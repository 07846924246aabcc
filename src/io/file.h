// Whole files: mapped for reading, written in one go.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace catamount::io {

// The bytes of a file, mapped read-only. Nothing is read before it is touched.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::span<const std::byte> bytes_;
};

// Writes the pieces one after the other. A reader sees the old file or the whole new one, and after
// an error the old one is still there.
void write_file(const std::filesystem::path& path,
                std::span<const std::span<const std::byte>> pieces);

}  // namespace catamount::io
