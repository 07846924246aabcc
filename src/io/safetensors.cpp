#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "io/check_io.h"
#include "io/json.h"

namespace catamount::io {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

std::uint64_t read_length(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return length;
}

// A non-negative number that int64 holds.
std::optional<std::int64_t> as_size(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

Metadata parse_metadata(const json& value, const std::string& file) {
  check_io(value.is_object(), "{}: {} must be an object of strings, got {}", file, kMetadataKey,
           value.type_name());
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    check_io(text.is_string(), "{}: {} must hold strings, got {} for \"{}\"", file, kMetadataKey,
             text.type_name(), key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

FileTensor parse_tensor(const std::string& name, const json& entry,
                        std::span<const std::byte> buffer, const std::string& file) {
  const std::string who = file + ": tensor \"" + name + "\"";
  const JsonObject fields(entry, who);
  const auto& known = {"dtype", "shape", "data_offsets"};
  for (const auto& item : entry.items()) {
    check_io(std::find(known.begin(), known.end(), item.key()) != known.end(),
             "{}: expected only dtype, shape and data_offsets, got \"{}\"", who, item.key());
  }

  FileTensor tensor;
  const std::string dtype_name = fields.string("dtype");
  const auto dtype = dtype_from_name(dtype_name);
  check_io(dtype.has_value(), "{}: expected a dtype of safetensors (BF16, F32, ...), got \"{}\"",
           who, dtype_name);
  tensor.dtype = *dtype;

  const json& shape = fields.at("shape");
  check_io(shape.is_array(), "{}: shape must be an array, got {}", who, shape.type_name());
  for (const json& value : shape) {
    const auto dim = as_size(value);
    check_io(dim.has_value(), "{}: dimensions must be integers in [0, 2^63), got {}", who,
             value.is_structured() ? value.type_name() : value.dump());
    tensor.shape.push_back(*dim);
  }
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  check_io(bytes.has_value(), "{}: {} has no size in whole bytes below 2^60", who,
           to_string(tensor));

  const json& offsets = fields.at("data_offsets");
  check_io(offsets.is_array() && offsets.size() == 2 && as_size(offsets[0]) && as_size(offsets[1]),
           "{}: data_offsets must be two integers in [0, 2^63)", who);
  const auto begin = static_cast<std::size_t>(*as_size(offsets[0]));
  const auto end = static_cast<std::size_t>(*as_size(offsets[1]));
  check_io(begin <= end && end <= buffer.size(),
           "{}: data_offsets must be a range within the {} bytes of data, got [{}, {}]", who,
           buffer.size(), begin, end);
  check_io(end - begin == *bytes, "{}: {} takes {} bytes, but data_offsets [{}, {}] hold {}", who,
           to_string(tensor), *bytes, begin, end, end - begin);
  tensor.data = buffer.subspan(begin, end - begin);
  return tensor;
}

// The format wants every byte of the buffer to belong to exactly one tensor: nothing can hide in
// between, and no tensor can alias another.
void check_coverage(const TensorMap& tensors, std::span<const std::byte> buffer,
                    const std::string& file) {
  std::vector<const TensorMap::value_type*> in_order;
  for (const auto& item : tensors) in_order.push_back(&item);
  const auto begin = [&](const TensorMap::value_type* item) {
    return static_cast<std::size_t>(item->second.data.data() - buffer.data());
  };
  std::sort(in_order.begin(), in_order.end(), [&](const auto* a, const auto* b) {
    return std::pair(begin(a), a->second.data.size()) < std::pair(begin(b), b->second.data.size());
  });
  std::size_t covered = 0;
  for (const auto* item : in_order) {
    const std::size_t at = begin(item);
    check_io(at >= covered,
             "{}: tensor \"{}\" starts at byte {} of the data, inside another one "
             "that ends at {}",
             file, item->first, at, covered);
    check_io(at == covered,
             "{}: bytes [{}, {}) of the data, before tensor \"{}\", belong to no "
             "tensor",
             file, covered, at, item->first);
    covered = at + item->second.data.size();
  }
  check_io(covered == buffer.size(), "{}: expected {} bytes of data, as the header says, got {}",
           file, covered, buffer.size());
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  check_io(bytes.size() >= kLengthBytes, "{}: expected at least {} bytes, got {}", file,
           kLengthBytes, bytes.size());
  const std::uint64_t length = read_length(bytes);
  check_io(length <= kMaxSafetensorsHeader, "{}: the header may have {} bytes, got {}", file,
           kMaxSafetensorsHeader, length);
  check_io(length <= bytes.size() - kLengthBytes,
           "{}: expected a header of {} bytes, but the file has only {} after the length", file,
           length, bytes.size() - kLengthBytes);
  const auto header = bytes.subspan(kLengthBytes, length);
  const auto buffer = bytes.subspan(kLengthBytes + length);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  check_io(text.starts_with('{'), "{}: the header must start with '{{'", file);

  const json root = parse_json(text, file);
  SafetensorsContent content;
  for (const auto& [name, entry] : root.items()) {
    if (name == kMetadataKey) {
      content.metadata = parse_metadata(entry, file);
    } else {
      content.tensors.emplace(name, parse_tensor(name, entry, buffer, file));
    }
  }
  check_coverage(content.tensors, buffer, file);
  return content;
}

Safetensors::Safetensors(const std::filesystem::path& path, std::string_view prefix) {
  std::filesystem::path source = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    source = path / kIndexName;
    if (!std::filesystem::exists(source, ignored)) source = path / kSingleName;
    check_io(std::filesystem::exists(source, ignored), "{}: expected {} or {} in this folder",
             path.string(), kIndexName, kSingleName);
  }
  name_ = source.string();
  if (source.extension() == ".json") {
    open_index(source, prefix);
  } else {
    open_file(source);
  }
}

void Safetensors::open_file(const std::filesystem::path& path) {
  files_.emplace_back(path);
  SafetensorsContent content = parse_safetensors(files_.back().bytes(), path.string());
  tensors_ = std::move(content.tensors);
  metadata_ = std::move(content.metadata);
}

void Safetensors::open_index(const std::filesystem::path& path, std::string_view prefix) {
  const MappedFile index(path);
  const json root = parse_json(index.text(), name_);
  const json& weight_map = JsonObject(root, name_).at("weight_map");
  check_io(weight_map.is_object(), "{}: \"weight_map\" must be an object, got {}", name_,
           weight_map.type_name());

  std::map<std::string, TensorMap> shards;
  for (const auto& [tensor, shard] : weight_map.items()) {
    if (!tensor.starts_with(prefix)) continue;
    check_io(shard.is_string(), "{}: \"{}\" must name a file, got {}", name_, tensor,
             shard.type_name());
    const auto& file = shard.get_ref<const std::string&>();
    // A plain name: an index must not reach files outside of its folder.
    const bool plain = !file.empty() && file != "." && file != ".." &&
                       file.find_first_of(std::string("/\0", 2)) == std::string::npos;
    check_io(plain, "{}: \"{}\" must name a file of the same folder, got \"{}\"", name_, tensor,
             file);
    if (!shards.contains(file)) {
      const auto shard_path = path.parent_path() / file;
      files_.emplace_back(shard_path);
      shards[file] = parse_safetensors(files_.back().bytes(), shard_path.string()).tensors;
    }
    auto node = shards[file].extract(tensor);
    check_io(!node.empty(), "{}: tensor \"{}\" should be in {}, and is not", name_, tensor, file);
    tensors_.insert(std::move(node));
  }
}

const FileTensor* Safetensors::find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

const FileTensor& Safetensors::at(std::string_view tensor) const {
  const FileTensor* found = find(tensor);
  check_io(found != nullptr, "{}: expected a tensor \"{}\", got none of that name", name_, tensor);
  return *found;
}

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const Metadata& metadata) {
  // The widest dtypes first, so that every tensor is aligned to its own.
  std::vector<const TensorMap::value_type*> in_order;
  for (const auto& item : tensors) in_order.push_back(&item);
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return dtype_bits(a->second.dtype) > dtype_bits(b->second.dtype);
  });

  json root = json::object();
  if (!metadata.empty()) root[kMetadataKey] = metadata;
  std::vector<std::span<const std::byte>> pieces(2);  // the first two: length and header
  std::size_t offset = 0;
  for (const auto* item : in_order) {
    const auto& [name, tensor] = *item;
    check(name != kMetadataKey, "a tensor cannot be called {}", name);
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    check(bytes == tensor.data.size(), "tensor \"{}\" is {}, but has {} bytes", name,
          to_string(tensor), tensor.data.size());
    root[name] = {{"dtype", to_string(tensor.dtype)},
                  {"shape", tensor.shape},
                  {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
    pieces.push_back(tensor.data);
  }
  std::string header;
  try {
    header = root.dump();
  } catch (const json::exception&) {
    fail(ErrorCode::invalid_argument, "{}: names and metadata must be UTF-8", path.string());
  }
  header.resize((header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  check(header.size() <= kMaxSafetensorsHeader, "{}: the header may have {} bytes, got {}",
        path.string(), kMaxSafetensorsHeader, header.size());

  std::array<std::byte, kLengthBytes> length{};
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  }
  pieces[0] = length;
  pieces[1] = std::as_bytes(std::span(header));
  write_file(path, pieces);
}

}  // namespace catamount::io
