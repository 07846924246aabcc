// Routing files: the grammar, and an error with a line number for everything outside of it.
#include "io/routing_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "temp_dir.h"

namespace catamount::io {
namespace {

using test::expect_error;
using Ids = std::vector<std::int32_t>;
using Weights = std::vector<float>;

TEST(RoutingFile, ReadsTheWholeGrammar) {
  const RoutingFile file = parse_routing(
      "# a comment\n"
      "\n"
      "rank 0   # its tokens\n"
      "3:0.5 7:0.25 -1\r\n"
      "\t1 2\n"
      "-1\n"
      "rank 1\n"
      "rank 2\n"
      "0:-1e-3 0:2",
      8);
  EXPECT_TRUE(file.names_ranks);
  EXPECT_EQ(file.topk, 3);
  ASSERT_EQ(file.ranks.size(), 3U);
  EXPECT_EQ(file.ranks[0].tokens, 3);
  EXPECT_EQ(file.ranks[0].topk_idx, (Ids{3, 7, -1, 1, 2, -1, -1, -1, -1}));
  EXPECT_EQ(file.ranks[0].topk_weights, (Weights{0.5F, 0.25F, 0, 0.5F, 0.5F, 0, 0, 0, 0}));
  EXPECT_EQ(file.ranks[1].tokens, 0);
  EXPECT_TRUE(file.ranks[1].topk_idx.empty());
  EXPECT_EQ(file.ranks[2].topk_idx, (Ids{0, 0, -1}));
  EXPECT_EQ(file.ranks[2].topk_weights, (Weights{-1e-3F, 2, 0}));
}

TEST(RoutingFile, WithoutRanksItIsOneList) {
  const RoutingFile file = parse_routing("0\n1\n2\n", 3);
  EXPECT_FALSE(file.names_ranks);
  EXPECT_EQ(file.topk, 1);
  ASSERT_EQ(file.ranks.size(), 1U);
  EXPECT_EQ(file.ranks[0].topk_idx, (Ids{0, 1, 2}));
  EXPECT_EQ(file.ranks[0].topk_weights, (Weights{1, 1, 1}));
}

TEST(RoutingFile, EqualWeightsLeaveOutMaskedSlots) {
  const RoutingFile file = parse_routing("-1 4 -1 5 5 6", 7);
  EXPECT_EQ(file.ranks[0].topk_weights, (Weights{0, 0.25F, 0, 0.25F, 0.25F, 0.25F}));
}

TEST(RoutingFile, EmptyTextHasNoTokens) {
  for (const char* text : {"", "\n\n", "# nothing", " \t"}) {
    const RoutingFile file = parse_routing(text, 4);
    ASSERT_EQ(file.ranks.size(), 1U);
    EXPECT_EQ(file.ranks[0].tokens, 0);
  }
}

TEST(RoutingFile, EveryDefectNamesItsLine) {
  struct {
    std::string text;
    const char* where;
    const char* word;
  } const cases[] = {
      {"0\n8", ":2:", "expert in [0, 8) or -1, got \"8\""},
      {"-2", ":1:", "got \"-2\""},
      {"99999999999999999999", ":1:", "expert in"},
      {"x", ":1:", "got \"x\""},
      {"1.5", ":1:", "got \"1.5\""},
      {"+1", ":1:", "got \"+1\""},
      {"1,2", ":1:", "got \"1,2\""},
      {":0.5", ":1:", "expert in"},
      {"1:", ":1:", "finite weight"},
      {"1:x", ":1:", "finite weight"},
      {"1:0.5x", ":1:", "finite weight"},
      {"1:nan", ":1:", "finite weight"},
      {"1:inf", ":1:", "finite weight"},
      {"1:1e99", ":1:", "finite weight"},
      {"1:0.5:2", ":1:", "finite weight"},
      {"-1:0.5", ":1:", "masked"},
      {"1:0.5 2", ":1:", "all 2 routed slots or in none, got 1"},
      {"\n\nrank 1", ":3:", "expected \"rank 0\", got \"rank 1\""},
      {"rank 0\nrank 2", ":2:", "expected \"rank 1\""},
      {"rank 0\nrank 0", ":2:", "expected \"rank 1\""},
      {"rank", ":1:", "expected \"rank 0\""},
      {"rank zero", ":1:", "expected \"rank 0\""},
      {"rank 0 1", ":1:", "nothing after"},
      {"1\nrank 0", ":2:", "no rank line"},
      {"1 rank", ":1:", "got \"rank\""},
      {std::string("1\0", 2), ":1:", "expert in"},
  };
  for (const auto& bad : cases) {
    expect_error(ErrorCode::io, {"r.txt" + std::string(bad.where), bad.word},
                 [&] { parse_routing(bad.text, 8, "r.txt"); });
  }
}

TEST(RoutingFile, BoundsOnSlotsAndRanks) {
  std::string slots, ranks;
  for (int i = 0; i < 64; ++i) {
    slots += "0 ";
    ranks += "rank " + std::to_string(i) + "\n";
  }
  EXPECT_EQ(parse_routing(slots, 1).topk, 64);
  EXPECT_EQ(parse_routing(ranks, 1).ranks.size(), 64U);
  expect_error(ErrorCode::io, {":1:", "at most 64 slots"}, [&] { parse_routing(slots + "0", 1); });
  expect_error(ErrorCode::io, {":65:", "at most 64 ranks"},
               [&] { parse_routing(ranks + "rank 64", 1); });
}

TEST(RoutingFile, ReadsFromDisk) {
  const test::TempDir dir;
  test::write_text(dir / "r.txt", "2\nbad\n");
  expect_error(ErrorCode::io, {"r.txt:2:"}, [&] { read_routing(dir / "r.txt", 4); });
  test::write_text(dir / "r.txt", "2\n");
  EXPECT_EQ(read_routing(dir / "r.txt", 4).ranks[0].topk_idx, (Ids{2}));
  expect_error(ErrorCode::io, {"cannot be opened"}, [&] { read_routing(dir / "none", 4); });
}

}  // namespace
}  // namespace catamount::io
