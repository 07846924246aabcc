// Tensor views: sizes in 64 bits, absent tensors, names for messages.
#include "catamount/tensor.h"

#include <gtest/gtest.h>

#include <string>

namespace catamount {
namespace {

struct DTypeCase {
  DType dtype;
  std::size_t bytes;
  const char* name;
};

class DTypeTest : public testing::TestWithParam<DTypeCase> {};

TEST_P(DTypeTest, BytesAndName) {
  EXPECT_EQ(dtype_bytes(GetParam().dtype), GetParam().bytes);
  EXPECT_STREQ(to_string(GetParam().dtype), GetParam().name);
}

TEST_P(DTypeTest, ViewCountsItsBytes) {
  EXPECT_EQ(TensorView(nullptr, GetParam().dtype, {3, 5}).bytes(), 15 * GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, DTypeTest,
    testing::Values(DTypeCase{DType::bf16, 2, "bf16"}, DTypeCase{DType::f16, 2, "f16"},
                    DTypeCase{DType::f32, 4, "f32"}, DTypeCase{DType::f64, 8, "f64"},
                    DTypeCase{DType::i32, 4, "i32"}, DTypeCase{DType::i64, 8, "i64"},
                    DTypeCase{DType::u8, 1, "u8"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(DType, ValueOutsideTheEnumerationHasNoSize) {
  EXPECT_EQ(dtype_bytes(static_cast<DType>(99)), 0U);
  EXPECT_STREQ(to_string(static_cast<DType>(99)), "unknown");
}

TEST(TensorView, DefaultIsAbsent) {
  const TensorView view;
  EXPECT_FALSE(view.present());
  EXPECT_EQ(view.size(), 0);
  EXPECT_EQ(view.bytes(), 0U);
  EXPECT_EQ(to_string(view), "absent");
}

TEST(TensorView, WithoutRowsIsPresentAndEmpty) {
  const TensorView view(nullptr, DType::bf16, {0, 64});
  EXPECT_TRUE(view.present());
  EXPECT_EQ(view.size(), 0);
  EXPECT_EQ(to_string(view), "bf16[0, 64]");
}

TEST(TensorView, SizesPass32Bits) {
  const TensorView view(nullptr, DType::f32, {256, 4096, 7168});
  EXPECT_EQ(view.size(), 7516192768);
  EXPECT_EQ(view.bytes(), 30064771072U);
}

TEST(TensorView, WritableConvertsToReadable) {
  float value = 0;
  const TensorView view(&value, DType::f32, {1});
  const ConstTensorView readable = view;
  EXPECT_EQ(readable.data, &value);
  EXPECT_EQ(readable.dtype, DType::f32);
  EXPECT_EQ(readable.num_dims, 1);
  EXPECT_EQ(readable.shape, view.shape);
}

TEST(TensorView, NameShowsDTypeAndShape) {
  EXPECT_EQ(to_string(ConstTensorView(nullptr, DType::i64, {7})), "i64[7]");
  EXPECT_EQ(to_string(ConstTensorView(nullptr, DType::f32, {2, 3, 4, 5})), "f32[2, 3, 4, 5]");
}

}  // namespace
}  // namespace catamount
