// The safetensors format: an 8-byte little-endian header length, a JSON header, the tensors' bytes.
//
// Files come from strangers: everything the header says is checked before it is used, and what is
// wrong is an Error(io) that names file and tensor, and says what was expected and what came.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/file_tensor.h"

namespace catamount::io {

inline constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;  // the reference reader's limit

using Metadata = std::map<std::string, std::string>;

struct SafetensorsContent {
  TensorMap tensors;  // their data lies in the bytes that were parsed
  Metadata metadata;
};

// `file` only serves the messages.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes,
                                     const std::string& file = "safetensors");

// The tensors of `path`: a file, an index (*.index.json) of several, or a folder with either under
// the names that Hugging Face gives them. Of a sharded checkpoint, only the shards with a tensor
// whose name starts with `prefix` are opened, and only those tensors are here.
class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path, std::string_view prefix = {});

  const std::string& name() const noexcept { return name_; }  // of the file or index
  const TensorMap& tensors() const noexcept { return tensors_; }
  const Metadata& metadata() const noexcept { return metadata_; }

  const FileTensor* find(std::string_view tensor) const;  // nullptr: not here
  const FileTensor& at(std::string_view tensor) const;

 private:
  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path, std::string_view prefix);

  std::string name_;
  std::vector<MappedFile> files_;
  TensorMap tensors_;
  Metadata metadata_;
};

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const Metadata& metadata = {});

}  // namespace catamount::io
