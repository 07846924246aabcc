// The safetensors reader and writer: what is right is read, every way of being wrong is one Error.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "temp_dir.h"

namespace catamount::io {
namespace {

using test::as_bytes;
using test::expect_error;
using test::TempDir;
using test::write_text;

std::string with_length(const std::string& header, const std::string& data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

TEST(Safetensors, ReadsWhatTheFormatDescribes) {
  const std::string file =
      with_length(R"({"__metadata__":{"format":"pt","é":"ü"},)"
                  R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                  R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                  R"("none":{"dtype":"I64","shape":[0,9223372036854775],"data_offsets":[16,16]},)"
                  R"("fp4":{"dtype":"F4","shape":[6],"data_offsets":[16,19]}}   )",
                  "0123456789abcdefXYZ");
  const auto content = parse_safetensors(as_bytes(file));
  EXPECT_EQ(content.metadata.at("format"), "pt");
  EXPECT_EQ(content.metadata.at("é"), "ü");
  ASSERT_EQ(content.tensors.size(), 4U);
  const FileTensor& b = content.tensors.at("b");
  EXPECT_EQ(b.dtype, FileDType::bf16);
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(b.data.data(), "456789abcdef", 12), 0);
  EXPECT_EQ(to_string(b), "BF16[2, 3]");
  EXPECT_EQ(content.tensors.at("a").size(), 1);
  EXPECT_EQ(content.tensors.at("none").data.size(), 0U);
  EXPECT_EQ(content.tensors.at("fp4").data.size(), 3U);
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  EXPECT_TRUE(parse_safetensors(as_bytes(with_length("{}", ""))).tensors.empty());
}

struct BadFile {
  const char* label;
  std::string file;
  std::vector<std::string> words;
};

std::string one(const std::string& entry, const std::string& data = "0123") {
  return with_length("{\"w\":" + entry + "}", data);
}
std::string f32(const std::string& shape, const std::string& offsets,
                const std::string& data = "0123") {
  return one(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}", data);
}
std::string two(const std::string& offsets_a, const std::string& offsets_b, std::size_t bytes) {
  const auto entry = [](const std::string& offsets) {
    return R"({"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}";
  };
  return with_length("{\"a\":" + entry(offsets_a) + ",\"b\":" + entry(offsets_b) + "}",
                     std::string(bytes, 'x'));
}

std::vector<BadFile> bad_files() {
  const std::string good = f32("[1]", "[0,4]");
  std::string huge_length = good;
  huge_length[7] = '\x7F';
  std::string over_cap = good;
  over_cap.replace(0, 8, std::string("\x01\xE1\xF5\x05\0\0\0\0", 8));  // 100,000,001
  return {
      {"empty", "", {"at least 8 bytes, got 0"}},
      {"half_a_length", "\x01\x02", {"at least 8 bytes, got 2"}},
      {"length_beyond_file", good.substr(0, 20), {"header of 54 bytes", "only 12"}},
      {"length_near_2_64", huge_length, {"may have 100000000 bytes"}},
      {"length_over_the_cap", over_cap, {"may have 100000000 bytes, got 100000001"}},
      {"no_brace", with_length(" {}", ""), {"must start with '{'"}},
      {"empty_header", with_length("", ""), {"must start with '{'"}},
      {"bad_json", with_length("{\"w\":", ""), {"expected JSON"}},
      {"text_after_json", with_length("{} x", ""), {"expected JSON"}},
      {"bad_utf8", with_length("{\"\xFF\":1}", ""), {"expected JSON"}},
      {"number_beyond_double", f32("[1e999]", "[0,4]"), {"expected JSON"}},
      {"duplicate_tensor",
       with_length(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                   R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                   ""),
       {"\"w\" comes twice"}},
      {"duplicate_field",
       one(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
       {"\"dtype\" comes twice"}},
      {"entry_is_no_object", one("3"), {"\"w\"", "expected a JSON object, got 3"}},
      {"unknown_field",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"),
       {"\"w\"", "got \"x\""}},
      {"missing_dtype", one(R"({"shape":[1],"data_offsets":[0,4]})"), {"\"w\"", "\"dtype\""}},
      {"missing_shape", one(R"({"dtype":"F32","data_offsets":[0,4]})"), {"\"w\"", "\"shape\""}},
      {"missing_offsets", one(R"({"dtype":"F32","shape":[1]})"), {"\"w\"", "\"data_offsets\""}},
      {"unknown_dtype",
       one(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})"),
       {"\"w\"", "got \"F33\""}},
      {"dtype_is_no_string", one(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})"), {"\"w\""}},
      {"shape_is_no_array", f32("1", "[0,4]"), {"\"w\"", "shape must be an array, got number"}},
      {"negative_dim", f32("[-1]", "[0,4]"), {"\"w\"", "got -1"}},
      {"fractional_dim", f32("[1.0]", "[0,4]"), {"\"w\"", "got 1.0"}},
      {"nested_dim", f32("[[1]]", "[0,4]"), {"\"w\"", "got array"}},
      {"dim_beyond_int64", f32("[9223372036854775808]", "[0,4]"), {"got 9223372036854775808"}},
      {"product_overflows", f32("[4294967296,4294967296]", "[0,4]"), {"\"w\"", "no size"}},
      {"product_overflows_to_0", f32("[2305843009213693952,8]", "[0,4]"), {"\"w\"", "no size"}},
      {"part_filled_byte",
       one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})", "01"),
       {"\"w\"", "whole bytes"}},
      {"offsets_not_a_pair", f32("[1]", "[0]"), {"\"w\"", "two integers"}},
      {"negative_offset", f32("[1]", "[-4,0]"), {"\"w\"", "two integers"}},
      {"offsets_backwards", f32("[1]", "[4,0]"), {"\"w\"", "got [4, 0]"}},
      {"offset_beyond_data", f32("[2]", "[0,8]"), {"\"w\"", "the 4 bytes", "got [0, 8]"}},
      {"offset_near_2_63", f32("[1]", "[9223372036854775803,9223372036854775807]"), {"\"w\""}},
      {"too_few_bytes", f32("[2]", "[0,4]"), {"F32[2] takes 8 bytes", "hold 4"}},
      {"too_many_bytes", f32("[1]", "[0,8]", "01234567"), {"F32[1] takes 4 bytes", "hold 8"}},
      {"truncated_data", f32("[1]", "[0,4]", "012"), {"\"w\"", "the 3 bytes"}},
      {"same_bytes_twice", two("[0,4]", "[0,4]", 4), {"\"b\" starts at byte 0", "ends at 4"}},
      {"overlap", two("[2,6]", "[0,4]", 6), {"\"a\" starts at byte 2", "ends at 4"}},
      {"hole_in_front", two("[5,9]", "[1,5]", 9), {"bytes [0, 1)", "\"b\""}},
      {"hole_between", two("[0,4]", "[6,10]", 10), {"bytes [4, 6)", "\"b\""}},
      {"bytes_left_over", two("[0,4]", "[4,8]", 9), {"expected 8 bytes", "got 9"}},
      {"metadata_is_no_object", with_length(R"({"__metadata__":[]})", ""), {"__metadata__"}},
      {"metadata_value_is_no_string", with_length(R"({"__metadata__":{"a":1}})", ""), {"\"a\""}},
  };
}

TEST(Safetensors, EveryDefectIsAnErrorThatSaysWhere) {
  for (const BadFile& bad : bad_files()) {
    SCOPED_TRACE(bad.label);
    try {
      parse_safetensors(as_bytes(bad.file), "some.safetensors");
      ADD_FAILURE() << "expected an Error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with("some.safetensors: ")) << what;
      for (const std::string& word : bad.words) EXPECT_NE(what.find(word), what.npos) << what;
    }
  }
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string file = two("[0,4]", "[4,8]", 8);
  ASSERT_NO_THROW(parse_safetensors(as_bytes(file)));
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_THROW(parse_safetensors(as_bytes(std::string_view(file).substr(0, n))), Error) << n;
  }
}

TEST(Safetensors, DeepNestingIsAnErrorNotAStackOverflow) {
  const std::string deep = "{\"w\":" + std::string(2'000'000, '[');
  expect_error(ErrorCode::io, {"expected JSON"},
               [&] { parse_safetensors(as_bytes(with_length(deep, ""))); });
  const std::string closed =
      "{\"w\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}";
  expect_error(ErrorCode::io, {"expected a JSON object"},
               [&] { parse_safetensors(as_bytes(with_length(closed, ""))); });
}

TensorMap some_tensors(const std::string& bytes) {
  const auto data = as_bytes(bytes);
  return {{"u8", {FileDType::u8, {3}, data.subspan(0, 3)}},
          {"f64", {FileDType::f64, {1, 2}, data.subspan(3, 16)}},
          {"empty", {FileDType::bf16, {0, 7}, {}}},
          {"bf16", {FileDType::bf16, {2, 1, 2}, data.subspan(20, 8)}}};
}

TEST(Safetensors, WrittenFilesComeBack) {
  const TempDir dir;
  const std::string bytes = "abcdefghijklmnopqrstuvwxyz012345";
  const TensorMap tensors = some_tensors(bytes);
  write_safetensors(dir / "a.safetensors", tensors, {{"made by", "a \"test\""}});
  const Safetensors file(dir / "a.safetensors");
  EXPECT_EQ(file.metadata(), (Metadata{{"made by", "a \"test\""}}));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const FileTensor& read = file.at(name);
    EXPECT_EQ(to_string(read), to_string(tensor));
    EXPECT_TRUE(std::ranges::equal(read.data, tensor.data)) << name;
    const auto address = reinterpret_cast<std::uintptr_t>(read.data.data());
    EXPECT_EQ(address % (static_cast<std::size_t>(dtype_bits(tensor.dtype)) / 8), 0U) << name;
  }
  EXPECT_EQ(file.find("other"), nullptr);
  expect_error(ErrorCode::io, {"a.safetensors", "\"other\""}, [&] { file.at("other"); });
}

TEST(Safetensors, WriterRefusesWhatItCouldNotReadBack) {
  const TempDir dir;
  const auto data = as_bytes("0123");
  const auto path = dir / "a.safetensors";
  write_text(path, "the old file");
  const TensorMap bad[] = {{{"w", {FileDType::f32, {2}, data}}},
                           {{"__metadata__", {FileDType::f32, {1}, data}}},
                           {{"\xFF", {FileDType::f32, {1}, data}}}};
  for (const TensorMap& tensors : bad) {
    expect_error(ErrorCode::invalid_argument, {}, [&] { write_safetensors(path, tensors); });
  }
  expect_error(ErrorCode::io, {"cannot be written"},
               [&] { write_safetensors(dir / "no/such/folder", {}); });
  EXPECT_EQ(test::read_text(path), "the old file");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Safetensors, MissingAndOddFilesAreErrors) {
  const TempDir dir;
  expect_error(ErrorCode::io, {"cannot be opened"}, [&] { Safetensors(dir / "none"); });
  expect_error(ErrorCode::io, {"model.safetensors.index.json"}, [&] { Safetensors(dir.path()); });
  write_text(dir / "empty", "");
  expect_error(ErrorCode::io, {"got 0"}, [&] { Safetensors(dir / "empty"); });
  expect_error(ErrorCode::io, {"regular file"}, [&] { Safetensors("/dev/null"); });
}

class Sharded : public ::testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(dir / "one.safetensors", {{"x.a", {FileDType::u8, {2}, as_bytes("ab")}},
                                                {"y.a", {FileDType::u8, {2}, as_bytes("cd")}}});
    write_safetensors(dir / "two.safetensors", {{"x.b", {FileDType::u8, {2}, as_bytes("ef")}}});
  }
  void index(const std::string& map) {
    write_text(dir / "model.safetensors.index.json",
               R"({"metadata":{"total_size":6},"weight_map":)" + map + "}");
  }
  void expect_bad(std::initializer_list<std::string_view> words) {
    expect_error(ErrorCode::io, words, [&] { Safetensors(dir.path()); });
  }
  TempDir dir;
};

TEST_F(Sharded, FindsTensorsInAllShards) {
  index(R"({"x.a":"one.safetensors","y.a":"one.safetensors","x.b":"two.safetensors"})");
  const Safetensors all(dir.path());
  EXPECT_EQ(all.tensors().size(), 3U);
  EXPECT_EQ(std::memcmp(all.at("x.a").data.data(), "ab", 2), 0);
  EXPECT_EQ(std::memcmp(all.at("x.b").data.data(), "ef", 2), 0);
}

TEST_F(Sharded, OpensOnlyTheShardsOfThePrefix) {
  index(R"({"x.a":"one.safetensors","y.a":"one.safetensors","x.b":"absent.safetensors"})");
  const Safetensors some(dir.path(), "y.");
  EXPECT_EQ(some.tensors().size(), 1U);
  EXPECT_NE(some.find("y.a"), nullptr);
  expect_bad({"absent.safetensors", "cannot be opened"});
}

TEST_F(Sharded, BadIndexesAreErrors) {
  index("[]");
  expect_bad({"weight_map", "array"});
  index(R"({"x.a":1})");
  expect_bad({"x.a", "number"});
  index(R"({"x.b":"one.safetensors"})");
  expect_bad({"\"x.b\"", "one.safetensors"});
  for (const char* name : {"../one.safetensors", "/etc/passwd", "", "..", "a/b"}) {
    index(R"({"x.a":")" + std::string(name) + "\"}");
    expect_bad({"same folder"});
  }
  index(R"({"x.a":"one.safetensors","x.a":"two.safetensors"})");
  expect_bad({"x.a", "twice"});
  write_text(dir / "model.safetensors.index.json", "{}");
  expect_bad({"weight_map"});
  write_text(dir / "model.safetensors.index.json", "[1");
  expect_bad({"expected JSON"});
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  const std::string good = two("[0,4]", "[4,8]", 8);
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string file = good;
    for (int n = 0; n < 1 + i % 3; ++n) file[random() % file.size()] = static_cast<char>(random());
    try {
      const auto content = parse_safetensors(as_bytes(file));
      for (const auto& [name, tensor] : content.tensors) {
        EXPECT_EQ(tensor_bytes(tensor.dtype, tensor.shape), tensor.data.size());
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
    }
  }
}

}  // namespace
}  // namespace catamount::io
