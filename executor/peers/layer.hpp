// delta executor: which kind of layer an operator is, by its name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace delta::executor {

/// Kinds of operators that published rules tell apart.
enum class layer : std::uint8_t {
  other,
  convolution,
  product  ///< of matrices: linear layers
};

/// By an operator's name, as frameworks have them ("aten::cudnn_convolution_backward", "conv2d",
/// "addmm"): one of its words says so. A word is what stands between characters that are not
/// letters; case and an ending "backward" don't count. O(length).
constexpr layer layer_of(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 10> products{
      "mm", "bmm", "addmm", "addbmm", "baddbmm", "gemm", "matmul", "linear", "fc", "dense"};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const auto letter = [&](char c) { return lower(c) >= 'a' && lower(c) <= 'z'; };
  const auto begins = [&](std::string_view word, std::string_view with) {
    return word.size() >= with.size() &&
           std::ranges::equal(word.substr(0, with.size()), with, {}, lower);
  };
  for (std::size_t i = 0; i < name.size(); ++i) {
    std::size_t end = i;
    while (end < name.size() && letter(name[end])) ++end;
    const std::string_view word = name.substr(i, end - i);
    const auto is = [&](std::string_view what) {
      if (!begins(word, what)) return false;
      const std::string_view rest = word.substr(what.size());
      return rest.empty() || (rest.size() == 8 && begins(rest, "backward"));
    };
    if (is("conv") || begins(word, "convolution")) return layer::convolution;
    if (std::ranges::any_of(products, is)) return layer::product;
    i = end;
  }
  return layer::other;
}

}  // namespace delta::executor
