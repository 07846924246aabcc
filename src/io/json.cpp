#include "io/json.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "io/check_io.h"

namespace catamount::io {
namespace {

// For messages: not a whole file's worth of text.
std::string excerpt(const nlohmann::json& value) {
  if (value.is_structured()) return value.type_name();
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open_objects;
  const auto watch_keys = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      check_io(open_objects.back().insert(key).second, "{}: the key \"{}\" comes twice", file, key);
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch_keys);
  } catch (const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at ...": the words after the tag.
    const std::string_view what = error.what();
    const auto tag_end = what.find("] ");
    fail(ErrorCode::io, "{}: expected JSON: {}", file,
         tag_end == std::string_view::npos ? what : what.substr(tag_end + 2));
  }
}

JsonObject::JsonObject(const nlohmann::json& value, std::string file)
    : value_(value), file_(std::move(file)) {
  check_io(value.is_object(), "{}: expected a JSON object, got {}", file_, excerpt(value));
}

bool JsonObject::has(const char* key) const {
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

const nlohmann::json& JsonObject::at(const char* key) const {
  check_io(has(key), "{}: expected a value for \"{}\", got none", file_, key);
  return *value_.find(key);
}

std::int64_t JsonObject::integer(const char* key, std::int64_t min, std::int64_t max) const {
  const nlohmann::json& value = at(key);
  // An unsigned number that only uint64 holds would turn negative in get<int64_t>().
  const bool ok = value.is_number_unsigned()
                      ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                      : value.is_number_integer();
  const std::int64_t number = ok ? value.get<std::int64_t>() : 0;
  check_io(ok && number >= min && number <= max,
           "{}: \"{}\" must be an integer in [{}, {}], got {}", file_, key, min, max,
           excerpt(value));
  return number;
}

double JsonObject::number(const char* key) const {
  const nlohmann::json& value = at(key);
  check_io(value.is_number() && std::isfinite(value.get<double>()),
           "{}: \"{}\" must be a number, got {}", file_, key, excerpt(value));
  return value.get<double>();
}

bool JsonObject::boolean(const char* key) const {
  const nlohmann::json& value = at(key);
  check_io(value.is_boolean(), "{}: \"{}\" must be true or false, got {}", file_, key,
           excerpt(value));
  return value.get<bool>();
}

std::string JsonObject::string(const char* key) const {
  const nlohmann::json& value = at(key);
  check_io(value.is_string(), "{}: \"{}\" must be a string, got {}", file_, key, excerpt(value));
  return value.get<std::string>();
}

}  // namespace catamount::io
