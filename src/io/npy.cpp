#include "io/npy.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "io/check_io.h"
#include "io/convert.h"
#include "io/file.h"
#include "io/file_tensor.h"

namespace catamount::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionEnd = kMagic.size() + 2;
constexpr std::size_t kAlign = 64;  // where NumPy starts the data

// The header is the literal of a Python dict. Just the words that NumPy writes are read.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  FileTensor parse() {
    FileTensor array;
    bool have_dtype = false, have_order = false, have_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !have_dtype) {
        array.dtype = dtype();
        have_dtype = true;
      } else if (key == "fortran_order" && !have_order) {
        c_order();
        have_order = true;
      } else if (key == "shape" && !have_shape) {
        array.shape = shape();
        have_shape = true;
      } else {
        bad("each of descr, fortran_order and shape once", key);
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) bad("nothing after the dict", rest_);
    check_io(have_dtype && have_order && have_shape,
             "{}: the header must have descr, fortran_order and shape", file_);
    return array;
  }

 private:
  [[noreturn]] void bad(const char* expected, std::string_view got) const {
    fail(ErrorCode::io, "{}: malformed header: expected {}, got \"{}\"", file_, expected,
         got.substr(0, 24));
  }
  void skip_space() {
    const auto n = rest_.find_first_not_of(" \t\n\r");
    rest_.remove_prefix(n == std::string_view::npos ? rest_.size() : n);
  }
  bool accept(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    const std::array<char, 2> wanted{c, '\0'};
    if (!accept(c)) bad(wanted.data(), rest_);
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::string_view quoted() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') bad("a quoted word", rest_);
    const auto end = rest_.find(quote, 1);
    if (end == std::string_view::npos) bad("a closing quote", rest_);
    const std::string_view word = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return word;
  }
  FileDType dtype() {
    const std::string_view descr = quoted();
    if (descr == "<f2") return FileDType::f16;
    if (descr == "<f4") return FileDType::f32;
    if (descr == "<f8") return FileDType::f64;
    fail(ErrorCode::io, "{}: expected dtype <f2, <f4 or <f8, got \"{}\"", file_,
         descr.substr(0, 24));
  }
  void c_order() {
    if (accept_word("False")) return;
    if (!accept_word("True")) bad("True or False", rest_);
    fail(ErrorCode::io, "{}: expected C order, got Fortran order", file_);
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dims;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t dim = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
      if (error != std::errc{} || dim < 0) bad("a dimension", rest_);
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      dims.push_back(dim);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  std::string_view rest_;
  const std::string& file_;
};

}  // namespace

F32Array parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_io(text.size() >= kVersionEnd && text.starts_with(kMagic),
           "{}: expected a .npy file, but it does not start as one", file);
  const int version = static_cast<unsigned char>(text[kMagic.size()]);
  check_io(version == 1 || version == 2, "{}: expected .npy version 1 or 2, got {}", file, version);

  const std::size_t length_bytes = version == 1 ? 2 : 4;
  check_io(text.size() >= kVersionEnd + length_bytes, "{}: ends inside its header", file);
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= std::to_integer<std::size_t>(bytes[kVersionEnd + i]) << (8 * i);
  }
  const std::size_t begin = kVersionEnd + length_bytes;
  check_io(length <= text.size() - begin, "{}: expected a header of {} bytes, got {}", file, length,
           text.size() - begin);

  FileTensor array = HeaderParser(text.substr(begin, length), file).parse();
  array.data = bytes.subspan(begin + length);
  const auto expected = tensor_bytes(array.dtype, array.shape);
  check_io(expected.has_value(), "{}: {} is too large", file, to_string(array));
  check_io(*expected == array.data.size(), "{}: expected {} bytes of data for {}, got {}", file,
           *expected, to_string(array), array.data.size());

  F32Array result{array.shape, std::vector<float>(static_cast<std::size_t>(array.size()))};
  tensor_to_f32(array, file, result.values);
  return result;
}

F32Array read_npy(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_npy(file.bytes(), path.string());
}

void write_npy(const std::filesystem::path& path, std::span<const float> values, std::int64_t rows,
               std::int64_t cols) {
  const std::array shape{rows, cols};
  check(tensor_bytes(FileDType::f32, shape) == values.size_bytes(),
        "a [{}, {}] array cannot have {} values", rows, cols, values.size());
  std::string head(kMagic);
  head += std::string("\1\0\0\0", 4);  // version 1.0; the length follows below
  head +=
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  head.resize(head.size() / kAlign * kAlign + kAlign, ' ');
  head.back() = '\n';
  const std::size_t length = head.size() - kVersionEnd - 2;
  head[kVersionEnd] = static_cast<char>(length & 0xFF);
  head[kVersionEnd + 1] = static_cast<char>(length >> 8);
  const std::array pieces{std::as_bytes(std::span<const char>(head)), std::as_bytes(values)};
  write_file(path, pieces);
}

}  // namespace catamount::io
