#include "io/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/fp8.h"
#include "io/check_io.h"

namespace catamount::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::int64_t kMxfp4BlockBytes = 16;  // 32 codes

// File data may lie anywhere, so values are copied out.
template <class T>
T load(std::span<const std::byte> data, std::size_t i) {
  T value;
  std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
  return value;
}

void check_out(const FileTensor& tensor, const std::string& name, std::size_t out) {
  check(static_cast<std::size_t>(tensor.size()) == out, "{}: {} cannot go to {} values", name,
        to_string(tensor), out);
}

template <class Out, class Convert>
void convert_each(const FileTensor& tensor, const std::string& name, std::span<Out> out,
                  Convert&& convert) {
  check_out(tensor, name, out.size());
  const auto each = [&](auto value_of) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = convert(value_of(i));
  };
  const auto data = tensor.data;
  switch (tensor.dtype) {
    case FileDType::f64:
      return each([&](std::size_t i) { return static_cast<float>(load<double>(data, i)); });
    case FileDType::f32:
      return each([&](std::size_t i) { return load<float>(data, i); });
    case FileDType::f16:
      return each([&](std::size_t i) { return f16_to_float(load<std::uint16_t>(data, i)); });
    case FileDType::bf16:
      return each([&](std::size_t i) { return to_float(load<Bf16>(data, i)); });
    default:
      fail(ErrorCode::io, "{}: expected F64, F32, F16 or BF16, got {}", name, to_string(tensor));
  }
}

}  // namespace

float f16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U)
    return float_from_bits(sign | 0x7F80'0000U | (magnitude & 0x3FFU) << 13);
  // Normal: 13 more mantissa bits, a bias 112 larger. Subnormal: multiples of 2^-24.
  const float value = magnitude >= 0x400U ? float_from_bits((magnitude << 13) + (112U << 23))
                                          : static_cast<float>(magnitude) * 0x1p-24F;
  return float_from_bits(sign | float_bits(value));
}

float e2m1_to_float(std::uint8_t code) noexcept {
  constexpr std::array kMagnitudes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float magnitude = kMagnitudes[code & 7U];
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

bool is_plain_float(FileDType dtype) noexcept {
  return dtype == FileDType::f64 || dtype == FileDType::f32 || dtype == FileDType::f16 ||
         dtype == FileDType::bf16;
}

void tensor_to_f32(const FileTensor& tensor, const std::string& name, std::span<float> out) {
  convert_each(tensor, name, out, [](float value) { return value; });
}

void tensor_to_bf16(const FileTensor& tensor, const std::string& name, std::span<Bf16> out) {
  if (tensor.dtype == FileDType::bf16) {  // also keeps the bits of NaNs
    check_out(tensor, name, out.size());
    if (!out.empty()) std::memcpy(out.data(), tensor.data.data(), out.size_bytes());
    return;
  }
  convert_each(tensor, name, out, [](float value) { return to_bf16(value); });
}

void fp8_blocks_to_bf16(const FileTensor& codes, const FileTensor& scales, BlockSize block,
                        const std::string& name, std::span<Bf16> out) {
  check_io(codes.dtype == FileDType::f8_e4m3 && codes.shape.size() == 2,
           "{}: expected F8_E4M3 with two dimensions, got {}", name, to_string(codes));
  check_out(codes, name, out.size());
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1];
  const std::int64_t scale_cols = (cols + block.cols - 1) / block.cols;
  const std::array expected{(rows + block.rows - 1) / block.rows, scale_cols};
  check_io(scales.dtype == FileDType::f32 && std::ranges::equal(scales.shape, expected),
           "{}: expected scales F32{} for {} in blocks of {} x {}, got {}", name,
           to_string(expected), to_string(codes), block.rows, block.cols, to_string(scales));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t begin = 0; begin < cols; begin += block.cols) {
      const std::int64_t tile = r / block.rows * scale_cols + begin / block.cols;
      const auto scale = load<float>(scales.data, static_cast<std::size_t>(tile));
      const std::int64_t end = std::min(begin + block.cols, cols);
      for (std::int64_t c = begin; c < end; ++c) {
        const auto i = static_cast<std::size_t>(r * cols + c);
        const auto code = std::to_integer<std::uint8_t>(codes.data[i]);
        out[i] = to_bf16(e4m3_to_float(code) * scale);
      }
    }
  }
}

void mxfp4_to_bf16(const FileTensor& blocks, const FileTensor& scales, const std::string& name,
                   std::span<Bf16> out) {
  auto expected = scales.shape;
  expected.push_back(kMxfp4BlockBytes);
  check_io(
      blocks.dtype == FileDType::u8 && scales.dtype == FileDType::u8 && blocks.shape == expected,
      "{}: expected MXFP4 as U8[..., G, 16] with scales U8[..., G], got {} with {}", name,
      to_string(blocks), to_string(scales));
  check(blocks.data.size() * 2 == out.size(), "{}: {} cannot go to {} values", name,
        to_string(blocks), out.size());
  for (std::size_t b = 0; b < scales.data.size(); ++b) {
    const float scale = e8m0_to_float(std::to_integer<std::uint8_t>(scales.data[b]));
    for (std::size_t j = 0; j < kMxfp4BlockBytes; ++j) {
      const std::size_t i = b * kMxfp4BlockBytes + j;
      const auto pair = std::to_integer<std::uint8_t>(blocks.data[i]);
      out[2 * i] = to_bf16(e2m1_to_float(pair) * scale);
      out[2 * i + 1] = to_bf16(e2m1_to_float(pair >> 4U) * scale);
    }
  }
}

}  // namespace catamount::io
