// JSON as files bring it: every defect is an Error(io) that names the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace catamount::io {

// Raises on anything that is not JSON, and on a key that comes twice in one object (which would let
// two readers of one file see different values).
nlohmann::json parse_json(std::string_view text, const std::string& file);

// Typed access to the members of one JSON object. A member that is null counts as absent.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& value, std::string file);

  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t min, std::int64_t max) const;
  double number(const char* key) const;
  bool boolean(const char* key) const;
  std::string string(const char* key) const;

 private:
  const nlohmann::json& value_;
  std::string file_;
};

}  // namespace catamount::io
