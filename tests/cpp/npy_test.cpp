// .npy files: what NumPy writes is read, everything else is one Error. Also matrices by name.
#include "io/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "io/matrix_file.h"
#include "io/safetensors.h"
#include "temp_dir.h"

namespace catamount::io {
namespace {

using test::as_bytes;
using test::expect_error;
using test::TempDir;

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

std::string dict(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }     \n";
}

TEST(Npy, ReadsTheThreeDtypesAndBothVersions) {
  const std::vector<float> values = {1.5F, -2.0F, 0.25F, 65504.0F};
  const std::string f2 = raw<std::uint16_t>({0x3E00, 0xC000, 0x3400, 0x7BFF});
  const std::string f4 = raw<float>({1.5F, -2.0F, 0.25F, 65504.0F});
  const std::string f8 = raw<double>({1.5, -2.0, 0.25, 65504.0});
  for (const int version : {1, 2}) {
    for (const auto& [descr, data] : {std::pair("<f2", f2), {"<f4", f4}, {"<f8", f8}}) {
      const auto array = parse_npy(as_bytes(npy(dict(descr, "(2, 2)"), data, version)));
      EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 2})) << descr;
      EXPECT_EQ(array.values, values) << descr;
    }
  }
}

TEST(Npy, ReadsEveryShape) {
  const std::string data = raw<float>({1, 2, 3, 4});
  EXPECT_TRUE(parse_npy(as_bytes(npy(dict("<f4", "()"), raw<float>({1})))).shape.empty());
  EXPECT_EQ(parse_npy(as_bytes(npy(dict("<f4", "(4,)"), data))).shape.size(), 1U);
  EXPECT_EQ(parse_npy(as_bytes(npy(dict("<f4", "(1, 4, 1)"), data))).shape.size(), 3U);
  EXPECT_TRUE(parse_npy(as_bytes(npy(dict("<f4", "(0, 8)"), ""))).values.empty());
}

TEST(Npy, EveryDefectIsAnError) {
  const std::string data = raw<float>({1, 2, 3, 4});
  const auto with_header = [&](const std::string& header) { return npy(header, data); };
  struct {
    std::string file;
    const char* word;
  } const cases[] = {
      {"", "does not start"},
      {"\x93NUMPX\1", "does not start"},
      {npy(dict("<f4", "(2, 2)"), data, 3), "version 1 or 2, got 3"},
      {std::string("\x93NUMPY\1\0\x10", 9), "ends inside"},
      {std::string("\x93NUMPY\1\0\xFF\xFF{}", 12), "header of 65535 bytes, got 2"},
      {std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF{}", 14), "header of 4294967295 bytes"},
      {npy(dict(">f4", "(2, 2)"), data), "got \">f4\""},
      {npy(dict("<i4", "(2, 2)"), data), "got \"<i4\""},
      {npy(dict("<f4", "(2, 3)"), data), "expected 24 bytes of data for F32[2, 3], got 16"},
      {npy(dict("<f4", "(2, 1)"), data), "expected 8 bytes"},
      {npy(dict("<f4", "(-2, 2)"), data), "a dimension"},
      {npy(dict("<f4", "(99999999999999999999,)"), data), "a dimension"},
      {npy(dict("<f4", "(4611686018427387904, 4)"), data), "too large"},
      {npy(dict("<f4", "(2 2)"), data), "expected )"},
      {npy(dict("<f4", "2"), data), "expected ("},
      {with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}"), "Fortran order"},
      {with_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 2)}"), "True or False"},
      {with_header("{'descr': '<f4', 'shape': (2, 2)}"), "must have"},
      {with_header("{'descr': '<f4', 'descr': '<f4', 'shape': (4,)}"), "once, got \"descr\""},
      {with_header("{'x': 1}"), "once, got \"x\""},
      {with_header("{'descr': [('a', '<f4')], 'shape': (4,)}"), "a quoted word"},
      {with_header("{'descr"), "a closing quote"},
      {with_header("{'descr': '<f4'"), "expected }"},
      {with_header(dict("<f4", "(4,)") + "x"), "nothing after the dict"},
      {with_header(""), "expected {"},
  };
  for (const auto& bad : cases) {
    expect_error(ErrorCode::io, {"x.npy: ", bad.word},
                 [&] { parse_npy(as_bytes(bad.file), "x.npy"); });
  }
  const std::string good = npy(dict("<f4", "(2, 2)"), data);
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW(parse_npy(as_bytes(std::string_view(good).substr(0, n))), Error) << n;
  }
}

TEST(Npy, WrittenArraysComeBackAndAreAligned) {
  const TempDir dir;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (const auto& [rows, cols] : {std::pair(2, 3), {6, 1}, {0, 5}}) {
    const std::span<const float> part(values.data(), static_cast<std::size_t>(rows * cols));
    write_npy(dir / "a.npy", part, rows, cols);
    const auto array = read_npy(dir / "a.npy");
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{rows, cols}));
    EXPECT_TRUE(std::ranges::equal(array.values, part));
    EXPECT_EQ((std::filesystem::file_size(dir / "a.npy") - part.size_bytes()) % 64, 0U);
  }
  expect_error(ErrorCode::invalid_argument, {"[2, 2]", "6"},
               [&] { write_npy(dir / "a.npy", values, 2, 2); });
}

TEST(MatrixFile, BothFormatsByName) {
  const TempDir dir;
  const Matrix matrix{2, 3, {1, 2, 3, 4, 5, 6}};
  for (const char* name : {"m.npy", "m.safetensors"}) {
    write_matrix(dir / name, matrix);
    const Matrix read = read_matrix(dir / name);
    EXPECT_EQ(read.rows, 2) << name;
    EXPECT_EQ(read.cols, 3) << name;
    EXPECT_EQ(read.values, matrix.values) << name;
  }
  EXPECT_EQ(to_string(Safetensors(dir / "m.safetensors").at("output")), "F32[2, 3]");
  expect_error(ErrorCode::invalid_argument, {".npy or .safetensors"},
               [&] { read_matrix(dir / "m.bin"); });
}

TEST(MatrixFile, JoinsLeadingDimensionsAndPicksTheTensor) {
  const TempDir dir;
  const std::string data = raw<float>({1, 2, 3, 4, 5, 6, 7, 8});
  const FileTensor tensor{FileDType::f32, {2, 2, 2}, as_bytes(data)};
  write_safetensors(dir / "a.safetensors", {{"hidden_states", tensor}, {"other", tensor}});
  const Matrix matrix = read_matrix(dir / "a.safetensors");
  EXPECT_EQ(matrix.rows, 4);
  EXPECT_EQ(matrix.cols, 2);
  write_safetensors(dir / "b.safetensors", {{"a", tensor}, {"b", tensor}});
  expect_error(ErrorCode::io, {"hidden_states", "got 2"},
               [&] { read_matrix(dir / "b.safetensors"); });
  write_safetensors(dir / "c.safetensors", {{"a", {FileDType::f32, {8}, as_bytes(data)}}});
  expect_error(ErrorCode::io, {"[tokens, hidden]", "[8]"},
               [&] { read_matrix(dir / "c.safetensors"); });
  write_safetensors(dir / "d.safetensors", {{"a", {FileDType::i32, {4, 2}, as_bytes(data)}}});
  expect_error(ErrorCode::io, {"I32[4, 2]"}, [&] { read_matrix(dir / "d.safetensors"); });
}

}  // namespace
}  // namespace catamount::io
